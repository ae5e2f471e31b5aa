/*
 * What a copy answers in that was parked ahead, whatever the session's size: from the code's being handed to it until its answer is here, as the engine
 * sees it. The copy stands in a cell behind all barriers and has taken the page faults that an earlier one told, as those of an engine.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/copy.h"
#include "bench/host.h"
#include "bench/limit.h"
#include "bridge/wire/host.h"
#include "bridge/wire/pack.h"

#include "base/banned.h"

#define PARKED_US 30000
#define FAULTS 48 /* as many as an engine asks for */

struct warm {
	long megabytes;
	const char *series, *line;
	struct furca_bench_host session;
	struct furca_buf pages; /* told by an earlier copy */
};

static int warm_start(struct warm *warm)
{
	char fill[64];

	(void)snprintf(fill, sizeof(fill), "data = b'x' * (%ld << 20)", warm->megabytes);
	return furca_bench_host_start("python", &warm->session) < 0 ? -EIO : furca_bench_host_run(&warm->session, fill);
}

static int tell_pages(const struct warm *warm, struct furca_bench_host *copy)
{
	msgpack_packer pk;

	if (warm->pages.len == 0)
		return 0;
	size_t at = furca_bench_host_begin(copy, &pk, FURCA_HOST_WARM, 1);
	furca_pack_text(&pk, "pages");
	furca_pack_raw(&pk, furca_buf_view(&warm->pages));
	return furca_bench_host_send(copy, at, NULL, 0);
}

static int learn_pages(struct warm *warm, struct furca_bench_host *copy, const struct furca_frame_view *done)
{
	struct furca_frame_view frame;
	bool pages = false;

	(void)furca_map_bool(done->body, "pages", &pages);
	if (!pages)
		return 0;
	if (furca_bench_host_receive(copy, FURCA_HOST_PAGES, &frame) < 0)
		return -EIO;
	furca_buf_clear(&warm->pages);
	return furca_buf_append(&warm->pages, frame.body.at, furca_view_size(frame.body));
}

/* One look, in microseconds; negative: failed. */
static double ask(struct warm *warm, struct furca_bench_host *copy)
{
	struct furca_frame_view done;
	msgpack_packer pk;
	int ends[2];

	if (furca_bench_host_pipes(copy, ends) < 0)
		return -1;
	double start = furca_bench_now_us();
	size_t at = furca_bench_host_begin(copy, &pk, FURCA_HOST_RUN, 3);
	furca_pack_entry(&pk, "code", "len(data)");
	furca_pack_text(&pk, "read_only");
	furca_pack_bool(&pk, true);
	furca_pack_text(&pk, "faults");
	(void)msgpack_pack_uint64(&pk, FAULTS);
	int r = furca_bench_host_send(copy, at, ends, 2);
	if (r == 0)
		r = furca_bench_host_receive(copy, FURCA_HOST_DONE, &done);
	double us = furca_bench_now_us() - start;
	(void)close(ends[0]);
	(void)close(ends[1]);
	if (r == 0)
		r = learn_pages(warm, copy, &done);
	return r < 0 ? -1 : us;
}

static double warm_look(struct warm *warm)
{
	struct furca_fd cell[2] = {FURCA_FD_NONE, FURCA_FD_NONE};
	struct furca_bench_host copy;
	double us = -1;

	if (furca_bench_copy_cell(cell) < 0)
		return -1;
	if (furca_bench_host_copy(&warm->session, cell[0].n, &copy) == 0 && tell_pages(warm, &copy) == 0) {
		(void)usleep(PARKED_US);
		us = ask(warm, &copy);
	}
	furca_bench_host_done(&copy);
	furca_fds_done(cell, 2);
	return us;
}

/* The least that an answer takes: a message to a process that waits, and one back. */
static struct furca_bench_series bare = {.name = "a message there and back, bare", .role = FURCA_BENCH_LIMIT};

static int bare_round(struct furca_bench_echo *echo)
{
	(void)usleep(2 * PARKED_US); /* for the last cell's network to be gone */
	double start = furca_bench_now_us();
	int r = furca_bench_echo_run(echo);
	furca_bench_add(&bare, furca_bench_now_us() - start);
	return r;
}

static void say(const struct warm *warm, const struct furca_bench_series *series)
{
	furca_bench_print(series);
	(void)furca_bench_say(&(struct furca_bench_line){
		.name = warm->line,
		.workload = "len(data) in a copy parked ahead, from handing it the code to having its answer",
		.over = series,
		.limit = &bare,
		.sense = FURCA_BENCH_AT_MOST,
		.goal = 500});
}

int furca_bench_copy_warm(unsigned rounds)
{
	static struct warm all[] = {
		{.megabytes = 8, .series = "copy parked, 8 MB", .line = "warm copy answers, 8 MB"},
		{.megabytes = 1024, .series = "copy parked, 1 GB", .line = "warm copy answers, 1 GB"},
		{.megabytes = 4096, .series = "copy parked, 4 GB", .line = "warm copy answers, 4 GB"},
	};
	static struct furca_bench_series series[FURCA_COUNT(all)];
	struct furca_bench_echo echo = {.request = 64, .answer = 64};
	size_t n = furca_bench_quick() ? 1 : FURCA_COUNT(all);
	int r = furca_bench_echo_open(&echo);

	if (r < 0)
		return 1;

	for (size_t i = 0; r == 0 && i < n; i++) {
		series[i] = (struct furca_bench_series){
			.name = all[i].series, .curve = "warm copy", .x_unit = "MB", .x = (double)all[i].megabytes};
		r = warm_start(&all[i]);
	}
	for (unsigned round = 0; r == 0 && round < rounds + 3; round++) {
		if (round == 3)
			bare.n = 0;
		r = bare_round(&echo);
		for (size_t i = 0; r == 0 && i < n; i++) {
			double us = warm_look(&all[i]);

			if (round == 3)
				series[i].n = 0;
			furca_bench_add(&series[i], us);
			r = us < 0 ? -EIO : 0;
		}
	}
	furca_bench_echo_close(&echo);
	furca_bench_print(&bare);
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			say(&all[i], &series[i]);
		furca_bench_host_done(&all[i].session);
		furca_buf_done(&all[i].pages);
	}
	return r < 0 ? 1 : 0;
}
