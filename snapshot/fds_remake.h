/* How each kind of descriptor is made again: the parts of fds.c, see fds.h. Raw calls only. Each returns 0 or -errno. */
#pragma once

#include "snapshot/fds.h"

/* What /proc says of a descriptor, into fds->path; its length or -errno. */
long furca_fds_link(struct furca_fds *fds, int fd);

/* Puts `fd` (owned) under all numbers of entry `i`'s description. */
int furca_fds_put(struct furca_fds *fds, size_t i, int fd);

/* Replaces entry `i` by something that answers every use with an error: a dead socket, or EBADF. */
int furca_fds_bury(struct furca_fds *fds, size_t i, bool socket);

int furca_fds_file(struct furca_fds *fds, size_t i);
int furca_fds_directory(struct furca_fds *fds, size_t i);
/* Whether fds->path, the link of a directory or of what is open as a path alone, is that of what is open. Before anything is written in the clone. */
bool furca_fds_leads_back(const struct furca_fds *fds, const struct furca_fds_entry *e);
int furca_fds_device(struct furca_fds *fds, size_t i);
int furca_fds_pipe(struct furca_fds *fds, size_t i);
int furca_fds_socket(struct furca_fds *fds, size_t i);
int furca_fds_event(struct furca_fds *fds, size_t i);
int furca_fds_timer(struct furca_fds *fds, size_t i);
int furca_fds_signal(struct furca_fds *fds, size_t i);

/* Makes all epoll instances again, when everything that they watch is in place. */
int furca_fds_epolls(struct furca_fds *fds);
