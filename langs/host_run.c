/*
 * RUN and DONE: a call's output pipes put in place, its code run by the language, and what came of it packed. A read-only run that took many page
 * faults tells which pages afterwards (snapshot/pages.h), for the next copy.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/host.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "langs/host_private.h"

#include "base/banned.h"

static void pack_bool(msgpack_packer *pk, const char *key, bool value)
{
	furca_pack_text(pk, key);
	furca_pack_bool(pk, value);
}

static void done_free(struct furca_host_done *done)
{
	furca_buf_done(&done->error);
	furca_buf_done(&done->suggestion);
	furca_buf_done(&done->raised);
	furca_buf_done(&done->unsent);
	furca_buf_done(&done->result);
	furca_fd_done(&done->memory);
	furca_buf_done(&done->result_text);
	furca_buf_done(&done->display);
	furca_buf_done(&done->changes);
}

static void pack_list(msgpack_packer *pk, const char *key, const struct furca_buf *list)
{
	furca_pack_text(pk, key);
	msgpack_pack_bin(pk, list->len);
	msgpack_pack_bin_body(pk, list->data, list->len);
}

/* Empty where they cannot be told: who was promised them waits for no more. */
static void send_pages(struct furca_host *host, uint64_t call)
{
	struct furca_pages pages;
	msgpack_packer pk;

	(void)furca_pages_touched(&pages);
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_PAGES, call, 2);
	pack_list(&pk, "written", &pages.written);
	pack_list(&pk, "mapped", &pages.mapped);
	furca_host_send_frame(host, offset, NULL, 0);
	furca_pages_done(&pages);
}

/* The fields of DONE that most calls do not have, and what is in them: text, or a packed value. */
struct part {
	const char *key;
	const struct furca_buf *content;
	bool text;
};
enum { PARTS = 8 };

static uint32_t parts_of(const struct furca_host_done *done, struct part ret[PARTS])
{
	const struct part all[PARTS] = {{"error", &done->error, true},	    {"suggestion", &done->suggestion, true},
					{"raised", &done->raised, false},   {"unsent", &done->unsent, true},
					{"result", &done->result, false},   {"result_text", &done->result_text, true},
					{"display", &done->display, false}, {"changes", &done->changes, false}};
	uint32_t n = 0;

	for (size_t i = 0; i < PARTS; i++)
		if (all[i].content->len)
			ret[n++] = all[i];
	return n;
}

static void pack_part(msgpack_packer *pk, const struct part *part)
{
	if (!part->text) {
		furca_host_pack_value(pk, part->key, part->content);
		return;
	}
	furca_pack_text(pk, part->key);
	furca_pack_bytes(pk, part->content->data, part->content->len);
}

static void send_done(struct furca_host *host, uint64_t call, const struct furca_host_done *done, int64_t run_us)
{
	bool hindered = done->hindrance.code != 0, cut = done->result_text_cut > 0;
	char text[FURCA_ERR_TEXT_MAX * 2];
	struct part parts[PARTS];
	uint32_t n = parts_of(done, parts);
	msgpack_packer pk;
	size_t offset = furca_frame_begin(&host->out, &pk, FURCA_HOST_DONE, call,
					  5 + n + cut + done->pages + 2 * (uint32_t)hindered);

	furca_pack_entry(&pk, "how", done->how ? done->how : "ok");
	furca_pack_text(&pk, "exit_code");
	msgpack_pack_int64(&pk, done->exit_code);
	pack_bool(&pk, "changed", done->changed);
	pack_bool(&pk, "redirected", host->attached || furca_output_redirected(&host->output) != 0);
	furca_host_pack_uint(&pk, "run_us", (uint64_t)run_us);
	for (uint32_t i = 0; i < n; i++)
		pack_part(&pk, &parts[i]);
	if (cut)
		furca_host_pack_uint(&pk, "result_text_cut", done->result_text_cut);
	if (done->pages)
		pack_bool(&pk, "pages", true);
	if (hindered) {
		furca_pack_entry(&pk, "hindrance", furca_err_describe(&done->hindrance, text, sizeof(text)));
		furca_pack_entry(&pk, "remedy", furca_err_suggestion(&done->hindrance));
	}
	furca_host_send_frame(host, offset, &done->memory.n, done->memory.n >= 0);
}

void furca_host_refuse(struct furca_host *host, uint64_t call, const struct furca_err *err)
{
	bool full = err->sys == EMFILE || err->sys == EBADF; /* that of dup2, beyond a limit */
	struct furca_host_done done = {.how = full ? FURCA_HOST_HOW_FULL : FURCA_HOST_HOW_REFUSED,
				       .exit_code = 1,
				       .changed = false,
				       .memory = FURCA_FD_NONE};

	(void)furca_buf_append_text(&done.error, err->text);
	(void)furca_buf_append_text(&done.suggestion, furca_err_suggestion(err));
	send_done(host, call, &done, 0);
	done_free(&done);
}

/* The fields of RUN that are read as they are. */
static const struct field {
	const char *name;
	enum furca_kind kind; /* of another, it is missing */
	size_t at;	      /* in struct furca_host_run: a view of text or of a whole map, a number, a truth value */
} fields[] = {
#define FIELD(name, kind)                                                                                              \
	{                                                                                                              \
#name, FURCA_##kind, offsetof(struct furca_host_run, name)                                             \
	}
	FIELD(code, STR),   FIELD(label, STR),	    FIELD(cwd, STR),	 FIELD(env, MAP),	  FIELD(function, MAP),
	FIELD(frames, STR), FIELD(read_only, BOOL), FIELD(faults, UINT), FIELD(max_result, UINT), FIELD(max_text, UINT),
#undef FIELD
};

static void take_field(const struct field *field, const struct furca_value *value, struct furca_host_run *ret)
{
	void *to = (char *)ret + field->at;

	if (value->kind != field->kind)
		return;
	switch ((int)field->kind) {
	case FURCA_STR:
		*(struct furca_view *)to = value->bytes;
		return;
	case FURCA_MAP:
		*(struct furca_view *)to = value->raw;
		return;
	case FURCA_UINT:
		*(uint64_t *)to = value->u;
		return;
	case FURCA_BOOL:
		*(bool *)to = value->b;
		return;
	}
}

/* In one walk: each call has this map, and most of its fields are not there. */
static void run_parse(const struct furca_frame_view *frame, struct furca_host_run *ret)
{
	struct furca_view rest = frame->body;
	struct furca_value map, key, value;

	*ret = (struct furca_host_run){.call = frame->call,
				       .faults = UINT64_MAX,
				       .max_result = FURCA_MAX_RESULT,
				       .max_text = FURCA_MAX_RESULT,
				       .memory = -1};
	(void)furca_value_enter(&rest, &map);
	while (furca_value_next(&rest, &key) == 0 && furca_value_next(&rest, &value) == 0)
		for (size_t i = 0; i < FURCA_COUNT(fields); i++)
			if (key.kind == FURCA_STR && furca_view_is(key.bytes, fields[i].name)) {
				take_field(&fields[i], &value, ret);
				break;
			}
	ret->max_result = FURCA_MIN(ret->max_result, (uint64_t)FURCA_MAX_CAPABILITY);
	ret->max_text = FURCA_MIN(ret->max_text, (uint64_t)FURCA_MAX_RESULT);
}

/* Leads the output to the call's pipes, unless it goes on with the last one's (`fds` NULL) or belongs to the program. 0 or -errno. */
static int place_pipes(struct furca_host *host, struct furca_fd *fds, struct furca_err *err)
{
	int r = !fds || host->attached ? 0
				       : furca_output_begin(&host->output, furca_fd_take(&fds[0]),
							    furca_fd_take(&fds[1]), !host->lang->closed_stays);

	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r, "cannot put the call's output pipes in place");
	return furca_fault(FURCA_FAULT_RUN_BEFORE) < 0
		       ? furca_fail(err, FURCA_E_SYSTEM, EIO, "failure point run_before")
		       : 0;
}

/* That needed no disk, of all threads. */
static uint64_t page_faults(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_SELF, &usage) < 0 ? 0 : (uint64_t)usage.ru_minflt;
}

/* Whether what the call changed is to be kept: a snapshot may follow it. */
static bool commits(const struct furca_host *host, const struct furca_host_run *run)
{
	return !run->read_only && !host->attached && host->role != FURCA_CLONE_STATELESS;
}

void furca_host_run(struct furca_host *host, const struct furca_frame_view *frame, struct furca_fd *fds, size_t n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_host_done done = {.changed = true, .memory = FURCA_FD_NONE};
	FURCA_AUTO_FD struct furca_fd memory = FURCA_FD_NONE;
	struct furca_host_run run;
	int64_t begin = furca_now_us();

	if (n_fds % 2) /* the last one's */
		memory = furca_fd_take(&fds[--n_fds]);
	bool same = n_fds == 0 && !host->attached && furca_output_in_place(&host->output);

	if (same && host->stirred && !host->parked) {
		done.how = FURCA_HOST_HOW_PIPES;
		send_done(host, frame->call, &done, 0);
		return;
	}
	host->stirred = false;
	host->hot.due = false; /* the code takes them itself now */
	furca_upkeep_stop(&host->upkeep);
	if ((n_fds != 2 && !same) || host->parked) {
		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0,
				 host->parked ? "a parked snapshot runs no code" : "a call needs two pipes");
		furca_host_refuse(host, frame->call, &err);
		return;
	}
	if (place_pipes(host, same ? NULL : fds, &err) < 0) {
		furca_host_refuse(host, frame->call, &err);
		return;
	}
	run_parse(frame, &run);
	run.memory = memory.n;
	run.output[0] = host->attached ? fds[0].n : -1;
	run.output[1] = host->attached ? fds[1].n : -1;
	host->read_only = run.read_only;
	bool crowded = furca_room_give_back(&host->room);
	if (host->role == FURCA_CLONE_COPY)
		furca_clone_start_timers();
	uint64_t faults = run.faults < UINT64_MAX ? page_faults() : 0;

	host->lang->run(host->data, &run, &done);
	if (!furca_host_is_self(host))
		_exit(done.exit_code & 0xff); /* the user's code forked, and its child ran off the end of the code */
	if (done.changed && commits(host, &run) && (!host->lang->may_hinder || host->lang->may_hinder(host->data)))
		(void)furca_clone_hindered(&done.hindrance);
	done.pages = run.faults < UINT64_MAX && page_faults() - faults > run.faults;
	if (furca_fault(FURCA_FAULT_RUN_AFTER) < 0) {
		done.how = "exception";
		(void)furca_buf_append_text(&done.error, "failure point run_after");
	}
	send_done(host, run.call, &done, furca_now_us() - begin);
	if (done.pages)
		send_pages(host, run.call);
	if ((done.changed || crowded) && commits(host, &run))
		furca_room_make(&host->room);
	done_free(&done);
	if (furca_fault(FURCA_FAULT_RUN_ANSWERED) < 0)
		_exit(1);
}
