/* Which namespaces a process is in, by their numbers. Two processes are in the same one if these are equal and not 0. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* NAMESPACE(flag CLONE_NEW…, name below /proc/PID/ns, number of PIDFD_GET_…_NAMESPACE, Linux 6.11) */
#define FURCA_NAMESPACE_KINDS(NAMESPACE)                                                                               \
	NAMESPACE(CLONE_NEWUSER, user, 9)                                                                              \
	NAMESPACE(CLONE_NEWNS, mnt, 3)                                                                                 \
	NAMESPACE(CLONE_NEWPID, pid, 5)                                                                                \
	NAMESPACE(CLONE_NEWIPC, ipc, 2)                                                                                \
	NAMESPACE(CLONE_NEWNET, net, 4)                                                                                \
	NAMESPACE(CLONE_NEWUTS, uts, 10)                                                                               \
	NAMESPACE(CLONE_NEWCGROUP, cgroup, 1)

enum furca_namespace {
#define NAMESPACE(flag, name, request) FURCA_NAMESPACE_##name,
	FURCA_NAMESPACE_KINDS(NAMESPACE)
#undef NAMESPACE
		FURCA_NAMESPACES
};

/* Inode numbers; 0: this kernel has no such namespaces, or it cannot be seen. */
struct furca_namespaces {
	uint64_t inode[FURCA_NAMESPACES];
};

unsigned furca_namespaces_flag(enum furca_namespace which);
const char *furca_namespaces_name(enum furca_namespace which);

/* Those of the calling thread. 0, or -errno: /proc does not tell. */
int furca_namespaces_own(struct furca_namespaces *ret);

/* Those of a process; needs the right to look into it. All 0 where it has ended. */
void furca_namespaces_of(int pidfd, struct furca_namespaces *ret);
