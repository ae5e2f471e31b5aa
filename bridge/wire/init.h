/*
 * The frames between the engine and an init process (snapshot/init.h): the parent of hosts at the surface, and pid 1 of
 * each cell. `call` is the engine's number for the request; EXITED carries 0.
 *
 * TO_INIT
 *   SPAWN       argv: [str]  env: [str] ("K=V")  cwd: str   descriptors: [control, capability, stderr]
 *               The program finds them as FURCA_HOST_CONTROL_FD, FURCA_HOST_CAPABILITY_FD and 2; 0 and 1 are /dev/null.
 *   CELL        namespaces: uint (bits of enum furca_barrier)  network: bool  upper_bytes: uint
 *               keep_pid: uint      nonzero: the cell is for a clone that keeps this pid, so this number is left free
 *   CHANGES     max: uint           at most so many paths
 * FROM_INIT
 *   SPAWNED     pid: uint   descriptors: [pidfd]     or  error: str
 *   EXITED      pid: uint  status: uint (as waitpid)  cpu_us: uint  max_rss_bytes: uint
 *   CELL_READY  held: uint (bits)  isolation: {str: str}   descriptors: [pidfd, control]   or  error: str
 *               namespaces: bin     struct furca_namespaces (snapshot/namespaces.h): which ones it has
 *   CHANGED     added: [str]  modified: [str]  deleted: [str]  count: uint
 *   UPPER       mark: uint  directories: bin (names, each with its NUL)     a cell's first frame: while these have that mark there
 *               is nothing to list (snapshot/upper.h)                     descriptors: [the directory that they stand in, O_PATH]
 */
#pragma once
