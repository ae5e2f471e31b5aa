/*
 * Making a clone's descriptors private. After a clone both processes share every open file description: offset, flags, locks,
 * queues, interest lists. Here each is replaced in the clone, under the same number:
 *
 *   regular file, directory, O_PATH   reopened by path (inside the cell's tree), same flags, same offset
 *   deleted, replaced, memfd          the content copied into a memfd (sparse parts stay sparse), seals kept
 *   larger than FURCA_FDS_COPY_UP and writable   reopened read-only, so that a write fails with EBADF; write-only: a stand-in
 *   pipe, both ends here              a new one with what was in it
 *   pipe, one end here                reading: what was in it, then the end; writing: EBADF
 *   unix socket pair, both ends here  a new pair with what was in flight (no descriptors)
 *   listening socket                  a new one on that address, but another port, in the cell's own network: it waits for
 *                                     ever, and who asks for the known port is refused
 *   other sockets                     dead: sending fails with EPIPE, receiving meets the end
 *   eventfd, timerfd, signalfd, epoll made again in the same state
 *   null, zero, full, random, urandom reopened
 *   everything else                   EBADF: terminals, devices, inotify, pidfds, io_uring, namespaces, queues …
 *
 * Numbers that share one description go on sharing one. For the clone while it has one thread; raw calls only.
 *
 * A standing snapshot is different: it may take the session's place, so it keeps what it can, but it must not keep alive what the
 * session closes: the other end of a pipe has to see the end, a port has to become free. It has files reopened (the original
 * description where that fails), pipes and sockets as above, listening sockets unbound until furca_fds_promote; the
 * pipes that lead from descriptors 1 and 2 to the engine, directories, nameless files and everything else are kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define FURCA_FDS_COPY_UP ((int64_t)16 << 20) /* the largest file that is reopened for writing: opening copies it up */
#define FURCA_FDS_COPY ((int64_t)256 << 20)   /* the largest content that is copied */

enum furca_fd_kind {
	FURCA_FDS_KEEP,
	FURCA_FDS_FILE,
	FURCA_FDS_GONE, /* a file without a name: its content is copied */
	FURCA_FDS_DIRECTORY,
	FURCA_FDS_DEVICE,
	FURCA_FDS_PIPE,
	FURCA_FDS_SOCKET,
	FURCA_FDS_EVENT,
	FURCA_FDS_TIMER,
	FURCA_FDS_SIGNAL,
	FURCA_FDS_EPOLL,
	FURCA_FDS_OTHER,
};

struct furca_fds_entry {
	int fd, flags; /* number; F_GETFL */
	int first;     /* index of the first entry with the same description */
	int saved;     /* epoll: the old one, until all others are in place; else -1 */
	uint32_t peer; /* unix sockets: inode of the peer */
	uint8_t kind;  /* enum furca_fd_kind */
	bool cloexec, done;
	bool adrift;	    /* a directory, or open as a path alone, whose path is another's now */
	bool writable_copy; /* replaced by a private file that can be mapped for writing */
	dev_t dev, device;  /* of the old description: st_dev, st_rdev */
	ino_t ino;
	mode_t mode;
	nlink_t links;
	int64_t size;
	struct timespec mtime;
};

struct furca_fds {
	/* set by the caller of furca_fds_plan */
	bool overlay;	   /* files are reopened in an overlay: writable ones too; else copied or reopened read-only */
	bool own_files;	   /* no disk barrier at all: reopened as they are (a branch, a snapshot) */
	bool standing;	   /* a snapshot, see above */
	bool own_network;  /* the net namespace is new */
	bool no_datagrams; /* datagram pairs are buried: they can send to any name */
	/* filled here */
	unsigned buried, copied;
	struct furca_fds_entry *entries;
	int *order; /* room to sort them in */
	size_t n, room;
	int *keep; /* sorted */
	size_t n_keep;
	int *drop;
	size_t n_drop;
	int listing, netlink; /* /proc/self/fd and sock_diag of the original */
	int own[2], dead_socket, dead_path;
	char path[4352], text[65536];
};

/* Allocates and opens; `fds` stands at zero but for the fields above. 0 or -errno. */
int furca_fds_plan(struct furca_fds *fds, const int *keep, size_t n_keep, const int *drop, size_t n_drop,
		   struct furca_err *err);
void furca_fds_free(struct furca_fds *fds); /* in either process; accepts a zeroed one */

/* Raw, in the original: lists its descriptors. 0 or -errno (-EMFILE: many more than at the time of planning). */
int furca_fds_census(struct furca_fds *fds);

/* Raw, in the clone: closes the `drop` ones and the plan's own. */
void furca_fds_drop(struct furca_fds *fds);

/* Raw, in the clone after furca_fds_drop: as above. 0 or -errno; on failure descriptions may still be shared. */
int furca_fds_privatise(struct furca_fds *fds);

/* Raw, in a standing snapshot that becomes the session: binds its listening sockets. Those that cannot be bound stay dead. */
void furca_fds_promote(void);

/*
 * Raw, after furca_fds_privatise: a descriptor of the private file that replaced that one, open for reading and writing; -1:
 * none. For mappings, so that they and the descriptor stay one file.
 */
int furca_fds_find(const struct furca_fds *fds, dev_t dev, ino_t ino);
