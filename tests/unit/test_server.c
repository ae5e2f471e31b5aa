/* The server on the real loop, with a stand-in for the engine: execute echoes its arguments, cancel ends the loop. */
#include <check.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/server.h"
#include "bridge/wire/limits.h"

#include "tests/unit/harness.h"

struct furca_engine {
	struct furca_server *server;
	struct furca_loop *loop;
	unsigned gone;
};

static struct furca_engine stand_in;

void furca_engine_request(struct furca_engine *engine, furca_client_id client, uint64_t msgid, enum furca_method method,
			  struct furca_view args, struct furca_fd *memory)
{
	if (method == FURCA_METHOD_cancel)
		furca_loop_end(engine->loop);
	furca_server_events.answer(engine->server, client, msgid, args, NULL);
}

void furca_engine_attach(struct furca_engine *engine, furca_client_id client, uint64_t msgid, struct furca_view args,
			 struct furca_fd channel)
{
	furca_fd_done(&channel);
	furca_server_events.answer(engine->server, client, msgid, args, NULL);
}

void furca_engine_client_gone(struct furca_engine *engine, furca_client_id client)
{
	engine->gone++;
}

void furca_engine_capability_done(struct furca_engine *engine, uint64_t id, struct furca_view value,
				  struct furca_view error, struct furca_fd *memory)
{
}

int furca_engine_object_call(struct furca_engine *engine, const struct furca_object_call *call, uint64_t *ret_id)
{
	return -ENOENT;
}

void furca_engine_object_let_go(struct furca_engine *engine, uint64_t owner, struct furca_view object)
{
}

static void empty_map(struct furca_buf *out)
{
	ck_assert_int_eq(furca_buf_append(out, "\x80", 1), 0);
}

void furca_engine_limits(struct furca_engine *engine, struct furca_buf *out)
{
	empty_map(out);
}

void furca_engine_guarantees(struct furca_engine *engine, struct furca_buf *out)
{
	empty_map(out);
}

static char dir[64], path[80];

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/furca-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/s", dir);
}

static void teardown(void)
{
	(void)unlink(path);
	ck_assert_int_eq(rmdir(dir), 0); /* nothing of ours is left */
}

static int connect_to(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void put(int fd, const char *bytes, size_t n)
{
	ck_assert_int_eq(furca_fd_write_all(fd, bytes, n), 0);
}

static void expect(int fd, const char *bytes, size_t n)
{
	char got[256];

	ck_assert_int_eq(furca_fd_read_full(fd, got, n), (ssize_t)n);
	ck_assert_int_eq(memcmp(got, bytes, n), 0);
}

#define PUT(fd, literal) put(fd, literal, sizeof(literal) - 1)
#define EXPECT(fd, literal) expect(fd, literal, sizeof(literal) - 1)

/* Runs the server in this process and `client` in a child; true where the child was content. */
static bool serve(void (*client)(void))
{
	struct furca_listener listener;
	struct furca_err err = FURCA_ERR_INIT;
	int status;

	ck_assert_msg(furca_listener_open(path, &listener, &err) == 0, "%s", err.text);
	pid_t child = fork();
	if (child == 0) {
		client();
		_exit(0);
	}
	ck_assert_int_eq(furca_loop_new(&stand_in.loop, &err), 0);
	ck_assert_int_eq(furca_server_new(stand_in.loop, &stand_in.server, &err), 0);
	ck_assert_int_eq(furca_server_start(stand_in.server, &stand_in, &listener, &err), 0);
	ck_assert_int_eq(furca_loop_run(stand_in.loop, &err), 0);
	furca_server_stop(stand_in.server);
	furca_server_free(stand_in.server);
	furca_loop_free(stand_in.loop);
	furca_listener_done(&listener);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void end(int fd)
{
	PUT(fd, "\x94\x00\x63\xa6"
		"cancel\x90");
}

static void echo_client(void)
{
	int a = connect_to(), b = connect_to();
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	PUT(a, "\x94\x00\x01\xa7"
	       "execute\x91\x81\xa1x\x05");
	EXPECT(a, "\x94\x01\x01\xc0\x81\xa1x\x05");
	/* A broken neighbour gets an error and its end; others do not notice. */
	PUT(b, "\xc1");
	EXPECT(b, "\x94\x01\xc0\x82\xa4"
		  "code\xa9malformed");
	while (read(b, (char[64]){0}, 64) > 0)
		;
	PUT(a, "\x94\x00\x02\xa7"
	       "execute\x90");
	EXPECT(a, "\x94\x01\x02\xc0\x80");
	end(a);
}

START_TEST(requests_are_echoed_and_a_broken_neighbour_does_no_harm)
{
	ck_assert(serve(echo_client));
}
END_TEST

/* 40 MiB there and back while neither side reads in between: short sends, back-pressure, nothing lost. */
static void big_client(void)
{
	enum { N = 40U << 20 };
	int a = connect_to();
	pid_t writer = fork();

	if (writer == 0) {
		char *big = calloc(1, N);

		PUT(a, "\x94\x00\x01\xa7"
		       "execute\x91\x81\xa1x\xc6\x02\x80\x00\x00");
		put(a, big, N);
		_exit(0);
	}
	usleep(300000);
	EXPECT(a, "\x94\x01\x01\xc0\x81\xa1x\xc6\x02\x80\x00\x00");
	char *got = malloc(N);
	ck_assert_int_eq(furca_fd_read_full(a, got, N), N);
	end(a);
}

START_TEST(a_large_message_goes_both_ways)
{
	ck_assert(serve(big_client));
}
END_TEST

START_TEST(a_living_socket_is_refused_and_a_stale_one_replaced)
{
	struct furca_listener a, b;
	struct furca_err err = FURCA_ERR_INIT;
	int status;

	pid_t child = fork();
	if (child == 0) { /* an engine that crashes: nothing is removed */
		ck_assert_int_eq(furca_listener_open(path, &a, &err), 0);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_msg(furca_listener_open(path, &a, &err) == 0, "%s", err.text);
	child = fork();
	if (child == 0)
		_exit(furca_listener_open(path, &b, &err) < 0 && err.code == FURCA_E_BUSY ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	furca_listener_done(&a);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_left_alone)
{
	struct furca_listener a;
	struct furca_err err = FURCA_ERR_INIT;
	char lock[96];
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	(void)fclose(f);
	ck_assert_int_lt(furca_listener_open(path, &a, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "is no socket"));
	(void)snprintf(lock, sizeof(lock), "%s.lock", path);
	(void)unlink(lock);
}
END_TEST

static void add(TCase *tc)
{
	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, requests_are_echoed_and_a_broken_neighbour_does_no_harm);
	tcase_add_test(tc, a_large_message_goes_both_ways);
	tcase_add_test(tc, a_living_socket_is_refused_and_a_stale_one_replaced);
	tcase_add_test(tc, a_file_that_is_no_socket_is_left_alone);
}

int main(void)
{
	return furca_test_main("server", add);
}
