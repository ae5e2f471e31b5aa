/*
 * furca-bench-capability: what calls out of sessions cost. One in flight: code in a session calls a capability of this process, against a Python
 * process that is asked by lines of JSON over pipes. Under load: the engine's own loop and streams answer 20 lanes with 16 calls in flight each, against
 * an epoll loop over the same kind of sockets; and how often the kernel is called for each message. And a lane's shared memory against bare futexes.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bench/bench.h"
#include "bench/execute.h"
#include "bench/limit.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/pack.h"
#include "bridge/wire/ring.h"
#include "engine/stream.h"
#include "include/furca.h"

#include "base/banned.h"

enum { LANES = 20, IN_FLIGHT = 16, MESSAGES = 20000, CALLS = 300 };

/* ---------------------------------------------------------------------------------------------------------- one in flight */

static struct furca_client *client;

static void lookup(void *user, const struct furca_capability_call *call)
{
	furca_answer_value(call,
			   "\xa5"
			   "found",
			   6);
}

static int session_calls(void *arg)
{
	struct furca_execute args =
		FURCA_EXECUTE("python", "for i in range(300): capabilities.contacts.lookup('Ada', limit=3)");

	args.state_mode = "stateful";
	return furca_bench_execute(client, &args);
}

/* The other way: a line for a call, a line for its answer, Python at both ends. A byte asks for CALLS of them. */
static const char seed_program[] =
	"import json, os, sys\n"
	"a, b = os.pipe(), os.pipe()\n"
	"if os.fork() == 0:\n"
	"    os.close(a[1])\n"
	"    r, w = os.fdopen(a[0], 'r'), os.fdopen(b[1], 'w')\n"
	"    for line in r:\n"
	"        m = json.loads(line)\n"
	"        w.write(json.dumps({'id': m['id'], 'result': 'found'}) + '\\n'); w.flush()\n"
	"    os._exit(0)\n"
	"os.close(a[0])\n"
	"w, r, n = os.fdopen(a[1], 'w'), os.fdopen(b[0], 'r'), 0\n"
	"while os.read(0, 1):\n"
	"    for i in range(300):\n"
	"        n += 1\n"
	"        w.write(json.dumps({'id': n, 'method': 'contacts.lookup', 'args': ['Ada'], 'kwargs': {'limit': 3}}) + '\\n'); w.flush()\n"
	"        assert json.loads(r.readline())['id'] == n\n"
	"    os.write(1, b'.')\n";

static int seed_socket = -1;

static int seed_calls(void *arg)
{
	char byte = '.';

	return furca_fd_write_all(seed_socket, &byte, 1) < 0 || furca_fd_read_full(seed_socket, &byte, 1) != 1 ? -EIO
													       : 0;
}

static pid_t seed_start(void)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(pair[1], 0);
		(void)dup2(pair[1], 1);
		(void)execlp(FURCA_PYTHON, FURCA_PYTHON, "-c", seed_program, (char *)NULL);
		_exit(127);
	}
	(void)close(pair[1]);
	seed_socket = pair[0];
	return pid;
}

static int bare_calls(void *echo)
{
	int r = 0;

	for (int i = 0; i < CALLS && r == 0; i++)
		r = furca_bench_echo_run(echo);
	return r;
}

static int one_in_flight(void)
{
	static struct furca_bench_series own = {.name = "300 calls, one in flight"},
					 seed = {.name = "the same, JSON lines to Python", .role = FURCA_BENCH_PEER};
	static struct furca_bench_series bare = {.name = "300 messages there and back, bare",
						 .role = FURCA_BENCH_LIMIT};
	struct furca_bench_echo echo = {.request = 64, .answer = 32};
	struct furca_bench_task tasks[] = {{.series = &seed, .run = seed_calls},
					   {.series = &own, .run = session_calls},
					   {.series = &bare, .run = bare_calls, .arg = &echo}};
	struct furca_error err;
	pid_t pid = seed_start();

	if (pid < 0 || furca_bench_echo_open(&echo) < 0 || furca_open_private(NULL, &client, &err) < 0 ||
	    furca_capability_register(client, "contacts.lookup", "read", NULL, NULL, 0, lookup, NULL, &err) < 0)
		return -EIO;
	int r = furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 10 : 40);
	if (r == 0)
		(void)furca_bench_say(
			&(struct furca_bench_line){.name = "JSON lines / capability call",
						   .workload = "one call in flight from Python code in a session",
						   .over = &seed,
						   .under = &own,
						   .limit = &bare,
						   .sense = FURCA_BENCH_AT_LEAST,
						   .goal = 2.5});
	furca_bench_echo_close(&echo);
	furca_close(client);
	(void)close(seed_socket);
	(void)waitpid(pid, NULL, 0);
	return r;
}

/* ------------------------------------------------------------------------------------------------------------- under load */

static struct furca_buf question, reply;

static void make_frames(void)
{
	msgpack_packer pk;
	size_t at = furca_frame_begin(&question, &pk, FURCA_LANE_CAPABILITY, 1, 3);

	furca_pack_text(&pk, "name");
	furca_pack_text(&pk, "contacts.lookup");
	furca_pack_text(&pk, "args");
	msgpack_pack_array(&pk, 1);
	furca_pack_text(&pk, "Ada");
	furca_pack_text(&pk, "kwargs");
	msgpack_pack_map(&pk, 0);
	(void)furca_frame_end(&question, at, 0);
	at = furca_frame_begin(&reply, &pk, FURCA_LANE_VALUE, 1, 1);
	furca_pack_text(&pk, "value");
	furca_pack_text(&pk, "found");
	(void)furca_frame_end(&reply, at, 0);
}

/* The sessions' side, one process: keeps IN_FLIGHT calls on each socket until MESSAGES were answered; once for each byte of `go`. */
static _Noreturn void drive(const int *socks, int go)
{
	char questions[IN_FLIGHT * 256], answers[65536], byte;
	struct pollfd p[LANES];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < IN_FLIGHT; i++)
		memcpy(questions + i * question.len, question.data, question.len);
	while (furca_fd_read_full(go, &byte, 1) == 1) {
		size_t left[LANES], open[LANES], part[LANES] = {0}, done = 0;

		for (int i = 0; i < LANES; i++) {
			left[i] = MESSAGES / LANES - IN_FLIGHT;
			open[i] = IN_FLIGHT;
			p[i] = (struct pollfd){.fd = socks[i], .events = POLLIN};
			(void)furca_fd_write_all(socks[i], questions, IN_FLIGHT * question.len);
		}
		while (done < MESSAGES && poll(p, LANES, -1) > 0)
			for (int i = 0; i < LANES; i++) {
				if (!p[i].revents)
					continue;
				ssize_t n = recv(socks[i], answers, sizeof(answers), 0);
				if (n <= 0)
					_exit(1);
				size_t whole = ((size_t)n + part[i]) / reply.len, more = FURCA_MIN(whole, left[i]);

				part[i] = ((size_t)n + part[i]) % reply.len;
				open[i] -= whole;
				done += whole;
				left[i] -= more;
				if (more > 0)
					(void)furca_fd_write_all(socks[i], questions, more * question.len);
			}
		(void)furca_fd_write_all(go, &byte, 1);
	}
	_exit(0);
}

struct load {
	int go; /* starts the other side, and tells its end */
	int socks[LANES];
	pid_t pid;
	struct furca_loop *loop;
	struct furca_stream streams[LANES];
	int epoll;
	struct furca_buf in[LANES], out;
	uint64_t calls; /* of the kernel */
};

static int load_open(struct load *load)
{
	int theirs[LANES], pair[2];

	for (int i = 0; i < LANES; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
		load->socks[i] = pair[0];
		theirs[i] = pair[1];
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (load->pid = fork()) < 0)
		return -errno;
	if (load->pid == 0) {
		for (int i = 0; i < LANES; i++)
			(void)close(load->socks[i]);
		(void)close(pair[0]);
		drive(theirs, pair[1]);
	}
	for (int i = 0; i < LANES; i++)
		(void)close(theirs[i]);
	(void)close(pair[1]);
	load->go = pair[0];
	return 0;
}

static void on_frame(void *owner, const struct furca_frame_view *frame, struct furca_fd *fds)
{
	static struct furca_buf buf; /* as the other loop has one; empty after each send */

	(void)furca_buf_append(&buf, reply.data, reply.len);
	(void)furca_stream_send(owner, &buf, NULL, 0);
}

static void on_end(void *owner, int reason)
{
}

static void on_over(void *owner, unsigned revents)
{
	struct load *load = owner;
	char byte;

	if (recv(load->go, &byte, 1, MSG_DONTWAIT) == 1)
		furca_loop_end(load->loop);
}

static int ring_open(struct load *load)
{
	struct furca_err err = FURCA_ERR_INIT;
	furca_op_id op;
	int r = load_open(load);

	if (r == 0)
		r = furca_loop_new(&load->loop, &err);
	for (int i = 0; r == 0 && i < LANES; i++) {
		r = furca_stream_open(&load->streams[i], load->loop, furca_fd_own(load->socks[i]), 65536, on_frame,
				      on_end, &load->streams[i]);
		furca_stream_gather(&load->streams[i]);
	}
	return r < 0 ? r : furca_loop_poll(load->loop, load->go, POLLIN, on_over, load, &op);
}

static int ring_run(void *arg)
{
	struct load *load = arg;
	struct furca_loop_stats before, after;
	uint64_t calls = furca_stream_calls();
	char byte = 0;

	furca_loop_stats(load->loop, &before);
	if (furca_fd_write_all(load->go, &byte, 1) < 0 || furca_loop_run(load->loop, NULL) < 0)
		return -EIO;
	furca_loop_stats(load->loop, &after);
	load->calls = furca_stream_calls() - calls + after.enters - before.enters;
	return 0;
}

static int epoll_open(struct load *load)
{
	int r = load_open(load);

	load->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; r == 0 && i <= LANES; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};

		r = epoll_ctl(load->epoll, EPOLL_CTL_ADD, i < LANES ? load->socks[i] : load->go, &event) < 0 ? -errno
													     : 0;
	}
	return r;
}

/* Reads what one socket has and answers it with one send. */
static int epoll_serve(struct load *load, int i)
{
	struct furca_buf *in = &load->in[i];
	struct furca_frame_view frame;
	size_t at = 0, need;

	if (furca_buf_reserve(in, 65536) < 0)
		return -ENOMEM;
	ssize_t n = recv(load->socks[i], in->data + in->len, 65536, 0);
	if (n <= 0)
		return -EIO;
	in->len += (size_t)n;
	furca_buf_clear(&load->out);
	while (furca_frame_parse(in->data + at, in->len - at, 65536, &frame, &need, NULL) == 1) {
		at += frame.size;
		(void)furca_buf_append(&load->out, reply.data, reply.len);
	}
	furca_buf_consume(in, at);
	return load->out.len ? furca_fd_write_all(load->socks[i], load->out.data, load->out.len) : 0;
}

static int epoll_run(void *arg)
{
	struct epoll_event events[LANES + 1];
	struct load *load = arg;
	char byte = 0;

	if (furca_fd_write_all(load->go, &byte, 1) < 0)
		return -EIO;
	for (;;) {
		int n = epoll_wait(load->epoll, events, FURCA_COUNT(events), -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == LANES)
				return recv(load->go, &byte, 1, 0) == 1 ? 0 : -EIO;
			if (epoll_serve(load, (int)events[i].data.u32) < 0)
				return -EIO;
		}
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int under_load(void)
{
	static struct load ring, epoll;
	static struct furca_bench_series own = {.name = "20,000 calls, the engine's loop"},
					 peer = {.name = "the same, an epoll loop", .role = FURCA_BENCH_LIMIT},
					 calls = {.name = "system calls a call", .unit = "calls"};
	struct furca_bench_task tasks[] = {{.series = &peer, .run = epoll_run, .arg = &epoll},
					   {.series = &own, .run = ring_run, .arg = &ring}};

	make_frames();
	/* The epoll side first: its driver must not hold the ring. */
	int r = epoll_open(&epoll);
	if (r == 0)
		r = ring_open(&ring);
	if (r == 0)
		r = furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 10 : 40);
	if (r < 0)
		return r;
	furca_bench_add(&calls, (double)ring.calls / MESSAGES);
	furca_bench_print(&calls);
	(void)furca_bench_say(&(struct furca_bench_line){.name = "epoll loop / engine's loop",
							 .workload = "20 lanes with 16 calls in flight each",
							 .over = &peer,
							 .under = &own,
							 .limit = &peer,
							 .sense = FURCA_BENCH_AT_LEAST,
							 .goal = 0.9});
	/* A call is two messages: one in, one out. */
	calls.values[0] /= 2;
	calls.name = "system calls a message";
	(void)furca_bench_say(&(struct furca_bench_line){.name = "system calls a message",
							 .workload = "20 lanes with 16 calls in flight each",
							 .over = &calls,
							 .sense = FURCA_BENCH_AT_MOST,
							 .goal = 0.2});
	return 0;
}

/* ------------------------------------------------------------------------------------------------------- shared memory */

enum { TRIPS = 2000 };

/* A lane's shared memory with a process that answers behind it, and next to it two bare words for what a futex takes by itself. */
static struct {
	struct furca_ring ring;
	uint32_t *words;
	pid_t pid;
} shared;

static void futex_until(uint32_t *word, uint32_t not_this)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == not_this)
		(void)syscall(SYS_futex, word, FUTEX_WAIT, not_this, NULL, NULL, 0);
}

static void futex_step(uint32_t *word)
{
	(void)__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The next frames of the other side; waits for them. */
static ssize_t next_frames(struct furca_ring *ring, uint8_t *bytes)
{
	bool by_socket;
	ssize_t n;

	while ((n = furca_ring_read(ring, bytes)) == 0)
		if (!furca_ring_heard(ring, &by_socket) && furca_ring_sleep(ring, FURCA_RING_FUTEX))
			furca_ring_wait(ring, 1000);
	return n;
}

/* The words: two that step in turn; one that counts rounds; and whether the round is for them. */
enum { ASKS, ANSWERS, ROUND, BARE };

/* Answers each question by the ring, or each step of one word by one of the other. */
static _Noreturn void answer_shared(int memory)
{
	static uint8_t bytes[FURCA_RING_BYTES];
	struct furca_frame_view frame;
	struct furca_ring ring;
	size_t need;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (furca_ring_open(&ring, memory) < 0)
		_exit(1);
	for (uint32_t round = 0, asked = 0;; round++) {
		futex_until(&shared.words[ROUND], round);
		bool bare = shared.words[BARE];

		for (uint32_t i = 0; i < TRIPS; i++) {
			if (bare) {
				futex_until(&shared.words[ASKS], asked++);
				futex_step(&shared.words[ANSWERS]);
			} else if (furca_frame_parse(bytes, (size_t)next_frames(&ring, bytes), 65536, &frame, &need,
						     NULL) != 1 ||
				   furca_ring_write(&ring, reply.data, reply.len) != 1) {
				_exit(1);
			} else {
				(void)furca_ring_ring(&ring, false);
			}
		}
	}
}

static int shared_open(void)
{
	FURCA_AUTO_FD struct furca_fd memory = FURCA_FD_NONE;

	shared.words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared.words == MAP_FAILED || furca_ring_new(&shared.ring, &memory) < 0 || (shared.pid = fork()) < 0)
		return -EIO;
	if (shared.pid == 0)
		answer_shared(memory.n);
	return 0;
}

static void begin_round(bool bare)
{
	shared.words[BARE] = bare;
	futex_step(&shared.words[ROUND]);
}

static int bare_trips(void *arg)
{
	begin_round(true);
	for (uint32_t i = 0; i < TRIPS; i++) {
		uint32_t before = __atomic_load_n(&shared.words[ANSWERS], __ATOMIC_ACQUIRE);

		futex_step(&shared.words[ASKS]);
		futex_until(&shared.words[ANSWERS], before);
	}
	return 0;
}

static int ring_trips(void *arg)
{
	static uint8_t bytes[FURCA_RING_BYTES];
	struct furca_frame_view frame;
	size_t need;

	begin_round(false);
	for (uint32_t i = 0; i < TRIPS; i++) {
		if (furca_ring_write(&shared.ring, question.data, question.len) != 1)
			return -EIO;
		(void)furca_ring_ring(&shared.ring, false);
		if (furca_frame_parse(bytes, (size_t)next_frames(&shared.ring, bytes), 65536, &frame, &need, NULL) != 1)
			return -EIO;
	}
	return 0;
}

static int by_shared_memory(void)
{
	static struct furca_bench_series own = {.name = "2,000 round trips of frames, a lane's shared memory"},
					 floor = {.name = "the same, two bare futexes", .role = FURCA_BENCH_LIMIT};
	struct furca_bench_task tasks[] = {{.series = &floor, .run = bare_trips}, {.series = &own, .run = ring_trips}};
	int r = shared_open();

	if (r == 0)
		r = furca_bench_rounds(tasks, FURCA_COUNT(tasks), furca_bench_quick() ? 10 : 40);
	if (shared.pid > 0) {
		(void)kill(shared.pid, SIGKILL);
		(void)waitpid(shared.pid, NULL, 0);
	}
	if (r == 0)
		(void)furca_bench_say(&(struct furca_bench_line){.name = "shared-memory lane / futex",
								 .workload = "one frame there and one back at a time",
								 .over = &own,
								 .under = &floor,
								 .limit = &floor,
								 .sense = FURCA_BENCH_AT_MOST,
								 .goal = 1.5});
	return r;
}

int main(void)
{
	if (furca_bench_begin("bench capability: calls out of sessions", FURCA_BENCH_ONE_CPU) < 0)
		return 77;
	int r = one_in_flight();
	if (r == 0)
		r = under_load();
	if (r == 0)
		r = by_shared_memory();
	return r < 0 ? 1 : furca_bench_status();
}
