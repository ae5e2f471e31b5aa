/*
 * What the limited API leaves out: the arena allocator and the audit hook. The functions are looked
 * up in the running interpreter, so that one module serves Python 3.9 and every later one; where
 * one is missing, its benefit is.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/*
 * Python's arenas from 2 MiB-aligned regions that ask for huge pages: a clone copies 512 times
 * fewer page table entries. FURCA_HUGE_PAGES=0 in the environment leaves the interpreter's own
 * allocator. Arenas that exist stay where they are. Call once, before or after the interpreter
 * starts.
 */
void furca_runtime_arenas(void);

/* Calls `flush` (without the GIL being given up) before code of Python's library forks or starts a
 * program. */
void furca_runtime_watch_forks(void (*flush)(void));

/* Adds fresh entropy to OpenSSL's generator where OpenSSL is loaded: a clone with the same pid
 * would repeat its bytes. */
void furca_runtime_reseed_openssl(void);

/* Before a clone: sets OpenSSL's generator up where OpenSSL is loaded, once. Reseeding one that was
 * never used sets it up in each clone, at 4 ms and 770 pages. */
void furca_runtime_prepare_openssl(void);
