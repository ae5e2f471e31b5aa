/* The read end of a call's pipe, read on the loop as fast as it fills. */
#pragma once

#include <stdbool.h>

#include "engine/loop.h"

/* Bytes came (n > 0), or every writer has closed (n 0, once). The callee may close the drain. */
typedef void furca_drain_fn(void *owner, int which, const uint8_t *data, size_t n);

struct furca_drain {
	struct furca_loop *loop;
	struct furca_fd fd;
	furca_op_id op, again;
	bool ended;
	bool large; /* the pipe has been made so */
	uint64_t total;
	unsigned *open_mark;
	int which;
	furca_drain_fn *fn;
	void *owner;
};

/* Makes a pipe: its read end is drained, its write end given out (blocking, close-on-exec). 0 or -errno. */
int furca_drain_open(struct furca_drain *drain, struct furca_loop *loop, int which, furca_drain_fn *fn, void *owner,
		     struct furca_fd *ret_write_end);

/* Reads what is in the pipe now (as FIONREAD says), calling fn; does not wait for more. */
void furca_drain_now(struct furca_drain *drain);

/* Closes; accepts one zeroed or closed already. */
void furca_drain_done(struct furca_drain *drain);
