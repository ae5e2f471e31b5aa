/* The host loop with a language of its own: what goes in as a frame comes to the language, and the
 * answer out again. */
#include "langs/host.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/host.h"
#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"

#include "base/banned.h"

#include "tests/unit/harness.h"

/* The language: code is a word. "say" writes to both streams, "fork" returns in two processes,
 * "fail" reports an error. */
static bool is(struct furca_view code, const char *word)
{
	return furca_view_is(code, word);
}

/* AddressSanitizer's runtime does not survive a clone. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static int closed;

static void run(void *data, const struct furca_host_run *run, struct furca_host_done *ret)
{
	if (is(run->code, "say")) {
		ck_assert_int_eq(write(1, "out", 3), 3);
		ck_assert_int_eq(write(2, "err", 3), 3);
	} else if (is(run->code, "fork") && fork() == 0) {
		ret->exit_code = 9;
	} else if (is(run->code, "fork")) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ret->exit_code = WEXITSTATUS(status);
	} else if (is(run->code, "fail")) {
		ret->how = "exception";
		ret->changed = false;
		(void)furca_buf_append_text(&ret->error, "why");
	} else if (is(run->code, "limits")) {
		ret->exit_code = (int)(run->max_text + run->max_result);
	}
}

static void inspect(void *data, struct furca_view detail, struct furca_view name, struct furca_buf *out)
{
	(void)furca_buf_append(out, is(detail, "full") ? "\x01" : "\x02", 1);
}

static void on_close(void *data)
{
	closed = 1;
}

static void idle(void *data)
{
}

static const struct furca_host_lang lang = {
	.language = "words", .version = "1", .run = run, .inspect = inspect, .close = on_close};

/* Does something around the wait, so that the host waits for the channel before it receives. */
static const struct furca_host_lang idle_lang = {
	.language = "words", .version = "1", .run = run, .idle_begin = idle, .idle_end = idle, .idle_signal = idle};

struct peer {
	pid_t pid;
	int control, capability;
	struct furca_buf in;
};

static void serve(int control, int capability, const struct furca_host_lang *served)
{
	struct furca_host host;

	if (dup3(control, 103, O_CLOEXEC) < 0 || dup3(capability, 104, O_CLOEXEC) < 0 ||
	    dup3(103, FURCA_HOST_CONTROL_FD, O_CLOEXEC) < 0 || dup3(104, FURCA_HOST_CAPABILITY_FD, O_CLOEXEC) < 0)
		_exit(101);
	if (furca_fd_close_rest((const int[]){FURCA_HOST_CONTROL_FD, FURCA_HOST_CAPABILITY_FD}, 2) < 0 ||
	    furca_host_init(&host, served, NULL, NULL) < 0)
		_exit(102);
	if (host.control.n < FURCA_HIDDEN_FD || host.capability.n < FURCA_HIDDEN_FD ||
	    fcntl(FURCA_HOST_CONTROL_FD, F_GETFD) >= 0)
		_exit(103);
	_exit(furca_host_serve(&host) == 0 && closed ? 42 : 104);
}

static int receive(struct peer *peer, struct furca_frame_view *ret, struct furca_fd *fds, size_t *n_fds)
{
	struct furca_err err = FURCA_ERR_INIT;

	return furca_frame_recv(peer->control, &peer->in, FURCA_MAX_HOST_FRAME, ret, fds, n_fds, &err);
}

static void expect(struct peer *peer, enum furca_frame number, uint64_t call, struct furca_frame_view *ret)
{
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n = FURCA_FDS_MAX;

	ck_assert_int_eq(receive(peer, ret, fds, &n), 1);
	ck_assert_int_eq(ret->number, number);
	ck_assert_uint_eq(ret->call, call);
	furca_fds_done(fds, n);
}

static void peer_start_lang(struct peer *peer, const struct furca_host_lang *served)
{
	int control[2], capability[2];
	struct furca_frame_view frame;
	struct furca_view language;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, capability), 0);
	*peer = (struct peer){.pid = fork(), .control = control[0], .capability = capability[0]};
	ck_assert_int_ge(peer->pid, 0);
	if (!peer->pid)
		serve(control[1], capability[1], served);
	(void)close(control[1]);
	(void)close(capability[1]);
	expect(peer, FURCA_HOST_READY, 0, &frame);
	ck_assert(furca_map_text(frame.body, "language", &language) && is(language, "words"));
}

static void peer_start(struct peer *peer)
{
	peer_start_lang(peer, &lang);
}

static void text(msgpack_packer *pk, const char *word)
{
	msgpack_pack_str_with_body(pk, word, strlen(word));
}

/* Appends a frame with one text field, or none. */
static void put(struct furca_buf *out, enum furca_frame number, uint64_t call, const char *key, const char *word,
		size_t n_fds)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(out, &pk, number, call, key ? 1 : 0);

	if (key) {
		text(&pk, key);
		text(&pk, word);
	}
	ck_assert_int_eq(furca_frame_end(out, offset, (unsigned)n_fds), 0);
}

static void ask(struct peer *peer, enum furca_frame number, uint64_t call, const char *key, const char *word,
		const int *fds, size_t n_fds)
{
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;

	put(&out, number, call, key, word, n_fds);
	ck_assert_int_eq(furca_frame_send(peer->control, out.data, out.len, fds, n_fds), 0);
}

static int ended(struct peer *peer)
{
	int status;

	ck_assert_int_eq(waitpid(peer->pid, &status, 0), peer->pid);
	furca_buf_done(&peer->in);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static uint64_t call_word(struct peer *peer, uint64_t call, const char *word, char *ret_out,
			  struct furca_frame_view *ret)
{
	int out[2], err[2];
	uint64_t exit_code = 0;

	ck_assert_int_eq(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(pipe2(err, O_CLOEXEC | O_NONBLOCK), 0);
	ask(peer, FURCA_HOST_RUN, call, "code", word, (const int[]){out[1], err[1]}, 2);
	(void)close(out[1]);
	(void)close(err[1]);
	expect(peer, FURCA_HOST_DONE, call, ret);
	memset(ret_out, 0, 16);
	if (read(out[0], ret_out, 8) < 0)
		ret_out[0] = '\0';
	(void)!read(err[0], ret_out + strlen(ret_out), 7);
	(void)close(out[0]);
	(void)close(err[0]);
	(void)furca_map_uint(ret->body, "exit_code", &exit_code);
	return exit_code;
}

START_TEST(runs_and_closes)
{
	struct furca_frame_view frame;
	struct furca_view how, error;
	struct peer peer;
	char out[16];
	bool changed;

	peer_start(&peer);
	ck_assert_uint_eq(call_word(&peer, 1, "say", out, &frame), 0);
	ck_assert_str_eq(out, "outerr");
	ck_assert(furca_map_text(frame.body, "how", &how) && is(how, "ok"));
	ck_assert(furca_map_bool(frame.body, "changed", &changed) && changed);
	(void)call_word(&peer, 2, "fail", out, &frame);
	ck_assert(furca_map_text(frame.body, "error", &error) && is(error, "why"));
	ck_assert(furca_map_bool(frame.body, "changed", &changed) && !changed);
	ck_assert_uint_eq(call_word(&peer, 3, "limits", out, &frame), 2 * FURCA_MAX_RESULT);
	ask(&peer, FURCA_HOST_CLOSE, 0, NULL, NULL, NULL, 0);
	ck_assert_int_eq(ended(&peer), 42);
}
END_TEST

START_TEST(forked_child_ends)
{
	struct furca_frame_view frame;
	struct peer peer;
	char out[16];

	peer_start(&peer);
	ck_assert_uint_eq(call_word(&peer, 1, "fork", out, &frame), 9);
	ck_assert_uint_eq(call_word(&peer, 2, "say", out, &frame), 0);
	(void)close(peer.control);
	ck_assert_int_eq(ended(&peer), 0);
}
END_TEST

START_TEST(inspects)
{
	struct furca_frame_view frame;
	struct peer peer;
	uint64_t state;

	peer_start(&peer);
	ask(&peer, FURCA_HOST_INSPECT, 5, "detail", "full", NULL, 0);
	expect(&peer, FURCA_HOST_INSPECTED, 5, &frame);
	ck_assert(furca_map_uint(frame.body, "state", &state));
	ck_assert_uint_eq(state, 1);
	(void)close(peer.control);
	ck_assert_int_eq(ended(&peer), 0);
}
END_TEST

START_TEST(wrong_frames)
{
	struct furca_frame_view frame;
	struct furca_view error;
	struct peer peer;

	peer_start(&peer);
	ask(&peer, FURCA_HOST_RUN, 1, "code", "say", NULL, 0); /* without pipes */
	expect(&peer, FURCA_HOST_DONE, 1, &frame);
	ck_assert(furca_map_text(frame.body, "error", &error));
	ask(&peer, FURCA_HOST_CLONE, 2, NULL, NULL, NULL, 0); /* without channels */
	expect(&peer, FURCA_HOST_CLONED, 2, &frame);
	ck_assert(furca_map_text(frame.body, "error", &error));
	ask(&peer, FURCA_HOST_DONE, 3, NULL, NULL, NULL, 0); /* not for a host */
	ck_assert_int_eq(ended(&peer), 1);
}
END_TEST

START_TEST(garbage_ends_it)
{
	struct peer peer;

	peer_start(&peer);
	ck_assert_int_eq(write(peer.control, "garbage, and more of it", 23), 23);
	ck_assert_int_eq(ended(&peer), 1);
}
END_TEST

/* Three calls in one message, on the pipes of a first one: what was received with the first is not waited for. */
static void check_ahead(const struct furca_host_lang *served)
{
	FURCA_AUTO_BUF struct furca_buf calls = FURCA_BUF_INIT;
	struct furca_frame_view frame;
	struct peer peer;
	char out[16];

	peer_start_lang(&peer, served);
	(void)call_word(&peer, 1, "limits", out, &frame);
	for (uint64_t call = 2; call < 5; call++)
		put(&calls, FURCA_HOST_RUN, call, "code", "limits", 0);
	ck_assert_int_eq(furca_frame_send(peer.control, calls.data, calls.len, NULL, 0), 0);
	for (uint64_t call = 2; call < 5; call++)
		expect(&peer, FURCA_HOST_DONE, call, &frame);
	(void)close(peer.control);
	ck_assert_int_eq(ended(&peer), 0);
}

START_TEST(frames_that_came_together_are_served)
{
	check_ahead(&lang);
	check_ahead(&idle_lang);
}
END_TEST

static void put_clone(struct furca_buf *out, uint64_t call, enum furca_clone_role role)
{
	msgpack_packer pk;
	size_t offset = furca_frame_begin(out, &pk, FURCA_HOST_CLONE, call, 1);

	text(&pk, "role");
	msgpack_pack_uint32(&pk, (uint32_t)role);
	ck_assert_int_eq(furca_frame_end(out, offset, 2), 0);
}

/* A call that was received together with CLONE is the original's only; the clone answers what comes on its own channel. */
static void check_clone(const struct furca_host_lang *served, enum furca_clone_role role)
{
	FURCA_AUTO_BUF struct furca_buf both = FURCA_BUF_INIT;
	struct furca_frame_view frame;
	struct peer peer, clone = {0};
	int control[2], capability[2];
	char out[16];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, capability), 0);
	peer_start_lang(&peer, served);
	(void)call_word(&peer, 1, "limits", out, &frame);
	put_clone(&both, 2, role);
	put(&both, FURCA_HOST_RUN, 3, "code", "limits", 0);
	ck_assert_int_eq(
		furca_frame_send(peer.control, both.data, both.len, (const int[]){control[1], capability[1]}, 2), 0);
	(void)close(control[1]);
	(void)close(capability[1]);
	expect(&peer, FURCA_HOST_CLONED, 2, &frame);
	ck_assert(!furca_map_text(frame.body, "error", &(struct furca_view){0}));
	expect(&peer, FURCA_HOST_DONE, 3, &frame);

	clone.control = control[0];
	expect(&clone, FURCA_HOST_READY, 0, &frame);
	if (role == FURCA_CLONE_SNAPSHOT) {
		ask(&clone, FURCA_HOST_PROMOTE, 4, NULL, NULL, NULL, 0);
		expect(&clone, FURCA_HOST_READY, 0, &frame);
	}
	(void)call_word(&clone, 5, "say", out, &frame);
	ck_assert_str_eq(out, "outerr");
	(void)close(clone.control);
	(void)close(capability[0]);
	furca_buf_done(&clone.in);
	(void)close(peer.control);
	ck_assert_int_eq(ended(&peer), 0);
}

START_TEST(a_clone_leaves_to_the_original_what_came_with_it)
{
	static const enum furca_clone_role roles[] = {FURCA_CLONE_SESSION, FURCA_CLONE_STATELESS, FURCA_CLONE_SNAPSHOT};

	for (size_t i = 0; i < FURCA_COUNT(roles); i++) {
		check_clone(&lang, roles[i]);
		check_clone(&idle_lang, roles[i]);
	}
}
END_TEST

static void add(TCase *cases)
{
	tcase_set_timeout(cases, 4);
	tcase_add_test(cases, runs_and_closes);
	tcase_add_test(cases, forked_child_ends);
	tcase_add_test(cases, inspects);
	tcase_add_test(cases, wrong_frames);
	tcase_add_test(cases, garbage_ends_it);
	tcase_add_test(cases, frames_that_came_together_are_served);
	if (!SANITIZED)
		tcase_add_test(cases, a_clone_leaves_to_the_original_what_came_with_it);
}

int main(void)
{
	return furca_test_main("host", add);
}
