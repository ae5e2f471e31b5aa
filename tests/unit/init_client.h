/* Talking to an init process from a test: blocking, one question at a time. Included by the one file that needs it. */
#pragma once

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "snapshot/barriers.h"
#include "snapshot/init.h"
#include "snapshot/upper.h"

static struct furca_proc init;
static struct furca_fd init_control;
static struct furca_buf init_in;

__attribute__((unused)) static void init_start(void)
{
	struct furca_err err = FURCA_ERR_INIT;

	ck_assert_msg(furca_init_start(&init, &init_control, &err) == 0, "%s", err.text);
}

__attribute__((unused)) static void init_stop(void)
{
	int status = -1;

	furca_fd_done(&init_control);
	ck_assert_int_eq(furca_proc_wait(&init, 1, &status), 1);
	ck_assert_int_eq(status, 0);
	furca_proc_done(&init);
	furca_buf_done(&init_in);
}

/* The next frame; at most two descriptors, -1 where there is none. */
__attribute__((unused)) static struct furca_frame_view init_next(int control, struct furca_fd ret[2])
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_frame_view frame;
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds;
	struct pollfd p = {.fd = control, .events = POLLIN};

	ck_assert_int_eq(poll(&p, 1, 5000), 1);
	ck_assert_int_eq(furca_fd_nonblock(control, 0), 0);
	ck_assert_msg(furca_frame_recv(control, &init_in, FURCA_MAX_MESSAGE, &frame, fds, &n_fds, &err) == 1, "%s",
		      err.text);
	ck_assert_uint_le(n_fds, 2);
	for (size_t i = 0; ret && i < 2; i++)
		ret[i] = i < n_fds ? furca_fd_take(&fds[i]) : FURCA_FD_NONE;
	furca_fds_done(fds, n_fds);
	return frame;
}

/* The next frame with that number; others that come by themselves are dropped. */
__attribute__((unused)) static struct furca_frame_view init_await(int control, enum furca_frame number,
								  struct furca_fd ret[2])
{
	for (;;) {
		struct furca_frame_view frame = init_next(control, ret);

		if (frame.number == number)
			return frame;
		ck_assert(frame.number == FURCA_INIT_EXITED || frame.number == FURCA_INIT_UPPER);
	}
}

__attribute__((unused)) static uint64_t number_of(struct furca_frame_view frame, const char *key)
{
	uint64_t n = 0;

	ck_assert_msg(furca_map_uint(frame.body, key, &n), "no %s", key);
	return n;
}

/* Asks for a cell; false with its error's text in `why`. */
__attribute__((unused)) static bool init_cell(int control, unsigned namespaces, bool network, uint64_t upper_bytes,
					      struct furca_fd ret[2], char *why, size_t size)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer packer;
	struct furca_view error;
	size_t offset = furca_frame_begin(&buf, &packer, FURCA_INIT_CELL, 9, 4);

	furca_pack_text(&packer, "namespaces");
	(void)msgpack_pack_uint32(&packer, namespaces);
	furca_pack_text(&packer, "network");
	(void)(network ? msgpack_pack_true(&packer) : msgpack_pack_false(&packer));
	furca_pack_text(&packer, "upper_bytes");
	(void)msgpack_pack_uint64(&packer, upper_bytes);
	furca_pack_text(&packer, "keep_pid");
	(void)msgpack_pack_uint32(&packer, 0);
	ck_assert_int_eq(furca_frame_end(&buf, offset, 0), 0);
	ck_assert_int_eq(furca_frame_send(control, buf.data, buf.len, NULL, 0), 0);
	furca_buf_done(&buf);
	struct furca_frame_view frame = init_await(control, FURCA_INIT_CELL_READY, ret);
	ck_assert_uint_eq(frame.call, 9);
	if (!furca_map_text(frame.body, "error", &error))
		return true;
	(void)snprintf(why, size, "%.*s", (int)furca_view_size(error), (const char *)error.at);
	return false;
}

/* Takes what a cell with a disk of its own says first: what it writes to, and the mark of that while it has not. */
__attribute__((unused)) static struct furca_upper init_upper(int control, uint64_t *ret_mark)
{
	struct furca_fd fds[2];
	struct furca_upper upper = {.top = FURCA_FD_NONE};
	struct furca_value names;
	struct furca_frame_view frame = init_next(control, fds);

	ck_assert_int_eq(frame.number, FURCA_INIT_UPPER);
	*ret_mark = number_of(frame, "mark");
	ck_assert(furca_map_get(frame.body, "directories", &names));
	ck_assert_int_eq(furca_buf_append(&upper.directories, names.bytes.at, furca_view_size(names.bytes)), 0);
	ck_assert_int_eq(fds[1].n, -1);
	upper.top = furca_fd_take(&fds[0]);
	return upper;
}

/* Asks for changes; renders "A/path M/path D/path", sorted by kind, into `text`, returns the count. */
__attribute__((unused)) static uint64_t init_changes(int control, uint64_t max, char *text, size_t size)
{
	struct furca_buf buf = FURCA_BUF_INIT;
	msgpack_packer packer;
	size_t offset = furca_frame_begin(&buf, &packer, FURCA_INIT_CHANGES, 10, 1), used = 0;

	furca_pack_text(&packer, "max");
	(void)msgpack_pack_uint64(&packer, max);
	ck_assert_int_eq(furca_frame_end(&buf, offset, 0), 0);
	ck_assert_int_eq(furca_frame_send(control, buf.data, buf.len, NULL, 0), 0);
	furca_buf_done(&buf);
	struct furca_frame_view frame = init_await(control, FURCA_INIT_CHANGED, NULL);
	text[0] = '\0';
	for (int i = 0; i < 3; i++) {
		struct furca_value list, item;

		ck_assert(furca_map_get(frame.body, (const char *[]){"added", "modified", "deleted"}[i], &list));
		for (struct furca_view at = furca_value_inside(&list); furca_value_next(&at, &item) == 0;)
			used += (size_t)snprintf(text + used, used < size ? size - used : 0, "%s%c%.*s",
						 used ? " " : "", "AMD"[i], (int)furca_view_size(item.bytes),
						 (const char *)item.bytes.at);
	}
	return number_of(frame, "count");
}
