#include "snapshot/init.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/init.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "snapshot/cell.h"
#include "snapshot/changes.h"
#include "snapshot/init_loop.h"
#include "snapshot/namespaces.h"
#include "snapshot/places.h"
#include "snapshot/spawn.h"

#include "base/banned.h"

#define NAME "furca-init"
#define MAX_STRINGS 8192 /* of argv or env in one SPAWN */
#define MAX_MAKING 16	 /* cells being made at once */

/* A cell that has been started and has not yet reported. */
struct making {
	uint64_t call;
	struct furca_cell cell;
};

struct init {
	int control, signals;
	bool ended;			     /* the engine is gone */
	const struct furca_overlay *overlay; /* of this cell, or NULL */
	const char *const *places;	     /* see overlay.h */
	struct furca_buf in, out;
	struct making making[MAX_MAKING];
	size_t n_making;
};

/* Finds the place of our argument vector and writes our name there, so that ps shows what this process is. */
static void take_name(void)
{
	char text[1024];
	unsigned long start = 0, end = 0;

	(void)prctl(PR_SET_NAME, NAME);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
	ssize_t n = fd.n < 0 ? -1 : furca_fd_read_full(fd.n, text, sizeof(text) - 1);
	if (n <= 0)
		return;
	text[n] = '\0';
	char *at = strrchr(text, ')');
	for (int field = 3; at && field < 48; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return;
	/* `at` is before field 47; 48 and 49 follow. */
	char *next = strchr(at + 1, ' ');
	if (!next)
		return;
	start = strtoul(next, &next, 10);
	end = strtoul(next, NULL, 10);
	if (start && end > start + sizeof(NAME)) {
		memset((void *)start, 0, end - start); // NOLINT: the kernel says that the area is ours
		memcpy((void *)start, NAME, sizeof(NAME));
	}
}

static int send_frame(struct init *init, size_t offset, const int *fds, size_t n_fds)
{
	int r = furca_frame_end(&init->out, offset, (unsigned)n_fds);

	if (r == 0)
		r = furca_frame_send(init->control, init->out.data + offset, init->out.len - offset, fds, n_fds);
	if (r == -EPIPE || r == -ECONNRESET)
		init->ended = true;
	furca_buf_done(&init->out);
	return r;
}

static void send_error(struct init *init, enum furca_frame number, uint64_t call, const struct furca_err *err)
{
	msgpack_packer packer;
	size_t offset = furca_frame_begin(&init->out, &packer, number, call, 1);

	furca_pack_text(&packer, "error");
	furca_pack_text(&packer, err->text);
	(void)send_frame(init, offset, NULL, 0);
}

/* As send_frame; where the descriptors cannot be passed, for too many of this user are on their way, the request has failed. */
static bool send_or_error(struct init *init, size_t offset, const int *fds, size_t n_fds, enum furca_frame number,
			  uint64_t call)
{
	struct furca_err err = FURCA_ERR_INIT;
	int r = send_frame(init, offset, fds, n_fds);

	if (r != -ETOOMANYREFS)
		return r == 0;
	(void)furca_fail(&err, FURCA_E_SYSTEM, ETOOMANYREFS, "no descriptor can be passed to the engine now");
	send_error(init, number, call, &err);
	return false;
}

static void send_exited(struct init *init, pid_t pid, int status, const struct rusage *usage)
{
	msgpack_packer packer;
	size_t offset = furca_frame_begin(&init->out, &packer, FURCA_INIT_EXITED, 0, 4);
	uint64_t cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
			  (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);

	furca_pack_text(&packer, "pid");
	(void)msgpack_pack_uint32(&packer, (uint32_t)pid);
	furca_pack_text(&packer, "status");
	(void)msgpack_pack_uint32(&packer, (uint32_t)status);
	furca_pack_text(&packer, "cpu_us");
	(void)msgpack_pack_uint64(&packer, cpu_us);
	furca_pack_text(&packer, "max_rss_bytes");
	(void)msgpack_pack_uint64(&packer, (uint64_t)usage->ru_maxrss * 1024);
	(void)send_frame(init, offset, NULL, 0);
}

/* Waits for all that have ended. False where no child is left. */
static bool reap(struct init *init, bool tell)
{
	for (;;) {
		struct rusage usage = {0};
		int status = 0;
		pid_t pid = wait4(-1, &status, WNOHANG | __WALL, &usage);

		if (pid == 0 || (pid < 0 && errno == EINTR))
			return true;
		if (pid < 0)
			return false;
		if (tell && !init->ended)
			send_exited(init, pid, status, &usage);
	}
}

/* A NULL-terminated vector of the strings in the array `key`; NULL where it is missing, malformed or memory is out. */
static char **strings_of(struct furca_view body, const char *key)
{
	struct furca_value array, item;

	if (!furca_map_get(body, key, &array) || array.kind != FURCA_ARRAY || array.count > MAX_STRINGS)
		return NULL;
	char **vector = calloc(array.count + 1, sizeof(*vector));
	struct furca_view at = furca_value_inside(&array);
	for (uint32_t i = 0; vector && i < array.count; i++) {
		if (furca_value_next(&at, &item) == 0 && item.kind == FURCA_STR)
			vector[i] = furca_view_dup(item.bytes);
		if (!vector[i]) {
			for (uint32_t k = 0; k < i; k++)
				free(vector[k]);
			free(vector);
			return NULL;
		}
	}
	return vector;
}

static void strings_free(char ***vector)
{
	for (char **s = *vector; s && *s; s++)
		free(*s);
	free(*vector);
}

static void on_spawn(struct init *init, const struct furca_frame_view *frame, const struct furca_fd *fds)
{
	struct furca_err err = FURCA_ERR_INIT;
	FURCA_AUTO_PROC struct furca_proc proc = FURCA_PROC_NONE;
	FURCA_AUTO(strings_free) char **argv = strings_of(frame->body, "argv");
	FURCA_AUTO(strings_free) char **env = strings_of(frame->body, "env");
	struct furca_view cwd_view;
	FURCA_AUTO_FREE char *cwd = furca_map_text(frame->body, "cwd", &cwd_view) ? furca_view_dup(cwd_view) : NULL;

	if (!argv || !argv[0] || !env || !cwd || frame->n_fds != 3) {
		(void)furca_fail(&err, FURCA_E_PROTOCOL, 0, "SPAWN wants argv, env, cwd and three descriptors");
	} else {
		struct furca_spawn spawn = {.argv = argv,
					    .env = env,
					    .cwd = cwd,
					    .control = fds[0].n,
					    .capability = fds[1].n,
					    .err = fds[2].n};
		(void)furca_spawn(&spawn, &proc, &err);
	}
	if (err.code) {
		send_error(init, FURCA_INIT_SPAWNED, frame->call, &err);
		return;
	}

	msgpack_packer packer;
	size_t offset = furca_frame_begin(&init->out, &packer, FURCA_INIT_SPAWNED, frame->call, 1);
	furca_pack_text(&packer, "pid");
	(void)msgpack_pack_uint32(&packer, (uint32_t)proc.pid);
	if (!send_or_error(init, offset, &proc.pidfd.n, 1, FURCA_INIT_SPAWNED, frame->call))
		(void)furca_proc_signal(&proc, SIGKILL);
}

static void on_cell(struct init *init, const struct furca_frame_view *frame)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_cell_args args = {.places = init->places};
	struct making *making = &init->making[init->n_making];
	uint64_t namespaces = 0, keep_pid = 0;

	(void)furca_map_uint(frame->body, "namespaces", &namespaces);
	(void)furca_map_uint(frame->body, "keep_pid", &keep_pid);
	(void)furca_map_uint(frame->body, "upper_bytes", &args.upper_bytes);
	(void)furca_map_bool(frame->body, "network", &args.network);
	args.namespaces = (unsigned)namespaces;
	args.keep_pid = (pid_t)keep_pid;
	if (init->n_making == MAX_MAKING)
		(void)furca_fail(&err, FURCA_E_BUSY, 0, "%d cells are being made already", MAX_MAKING);
	else
		(void)furca_cell_start(&args, &making->cell, &err);
	if (err.code) {
		send_error(init, FURCA_INIT_CELL_READY, frame->call, &err);
		return;
	}
	making->call = frame->call;
	init->n_making++;
}

/* A cell has reported: passes it to the engine. */
static void on_cell_report(struct init *init, size_t at)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_cell_facts facts;
	msgpack_packer packer;
	FURCA_AUTO(furca_cell_done) struct furca_cell cell = init->making[at].cell;
	uint64_t call = init->making[at].call;

	init->making[at] = init->making[--init->n_making];
	if (furca_cell_report(&cell, &facts, &err) < 0) {
		send_error(init, FURCA_INIT_CELL_READY, call, &err);
		return;
	}
	struct furca_namespaces namespaces;
	furca_namespaces_of(cell.proc.pidfd.n, &namespaces);
	size_t offset = furca_frame_begin(&init->out, &packer, FURCA_INIT_CELL_READY, call, 3);
	furca_pack_text(&packer, "namespaces");
	(void)msgpack_pack_bin(&packer, sizeof(namespaces));
	(void)msgpack_pack_bin_body(&packer, &namespaces, sizeof(namespaces));
	furca_pack_text(&packer, "held");
	(void)msgpack_pack_uint32(&packer, facts.held);
	furca_pack_text(&packer, "isolation");
	(void)msgpack_pack_map(&packer, FURCA_BARRIERS);
	for (int bit = 0; bit < FURCA_BARRIERS; bit++) {
		furca_pack_text(&packer, furca_barrier_word(bit));
		furca_pack_text(&packer, furca_mechanism_word(facts.mechanism[bit]));
	}
	(void)send_or_error(init, offset, (int[]){cell.proc.pidfd.n, cell.control.n}, 2, FURCA_INIT_CELL_READY, call);
}

/* The paths of one kind of change, collected as packed strings. */
struct paths {
	struct furca_buf buf[3]; /* by enum furca_change */
	uint32_t n[3];
};

static void on_change(void *data, enum furca_change change, const char *path)
{
	struct paths *paths = data;
	msgpack_packer packer;

	msgpack_packer_init(&packer, &paths->buf[change], furca_buf_msgpack_write);
	furca_pack_text(&packer, path);
	paths->n[change]++;
}

static void on_changes(struct init *init, const struct furca_frame_view *frame)
{
	static const char *const key[] = {[FURCA_CHANGE_ADDED] = "added",
					  [FURCA_CHANGE_MODIFIED] = "modified",
					  [FURCA_CHANGE_DELETED] = "deleted"};
	struct paths paths = {0};
	uint64_t max = 1000, count = 0;
	msgpack_packer packer;

	(void)furca_map_uint(frame->body, "max", &max);
	if (init->overlay)
		count = furca_changes_list(init->overlay, max, on_change, &paths);
	size_t offset = furca_frame_begin(&init->out, &packer, FURCA_INIT_CHANGED, frame->call, 4);
	for (size_t i = 0; i < FURCA_COUNT(key); i++) {
		furca_pack_text(&packer, key[i]);
		(void)msgpack_pack_array(&packer, paths.n[i]);
		(void)furca_buf_append(&init->out, paths.buf[i].data, paths.buf[i].len);
		furca_buf_done(&paths.buf[i]);
	}
	furca_pack_text(&packer, "count");
	(void)msgpack_pack_uint64(&packer, count);
	(void)send_frame(init, offset, NULL, 0);
}

/* Where the kernel does not tell, CHANGES is asked each time. */
static void send_upper(struct init *init)
{
	const struct furca_overlay *overlay = init->overlay;
	msgpack_packer packer;

	if (!overlay->mark)
		return;
	size_t offset = furca_frame_begin(&init->out, &packer, FURCA_INIT_UPPER, 0, 2);
	furca_pack_text(&packer, "mark");
	(void)msgpack_pack_uint64(&packer, overlay->mark);
	furca_pack_text(&packer, "directories");
	(void)msgpack_pack_bin(&packer, overlay->upper.directories.len);
	(void)msgpack_pack_bin_body(&packer, overlay->upper.directories.data, overlay->upper.directories.len);
	(void)send_frame(init, offset, &overlay->upper.top.n, 1);
}

static void on_control(struct init *init)
{
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_frame_view frame;
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds = 0;
	int r = furca_frame_recv(init->control, &init->in, FURCA_MAX_MESSAGE, &frame, fds, &n_fds, &err);

	if (r <= 0) { /* the end, or a stream that cannot be followed any more: the same to us */
		init->ended = true;
		return;
	}
	switch (frame.number) {
	case FURCA_INIT_SPAWN:
		on_spawn(init, &frame, fds);
		break;
	case FURCA_INIT_CELL:
		on_cell(init, &frame);
		break;
	case FURCA_INIT_CHANGES:
		on_changes(init, &frame);
		break;
	default:
		init->ended = true;
	}
	furca_fds_done(fds, n_fds);
	furca_buf_done(&init->in);
}

static void kill_children_listed(int fd)
{
	char text[4096];
	size_t kept = 0;
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, text + kept, sizeof(text) - 1 - kept, at)) > 0) {
		size_t have = kept + (size_t)n;
		char *from = text, *end;

		at += n;
		text[have] = '\0';
		while ((end = strchr(from, ' '))) {
			(void)kill((pid_t)strtol(from, NULL, 10), SIGKILL);
			from = end + 1;
		}
		kept = have - (size_t)(from - text);
		memmove(text, from, kept);
	}
}

/*
 * Kills every child until none is left. Children of those that end come to us, the subreaper, so that each round goes one
 * level down; a child's number cannot be recycled, since only we wait for it.
 */
static void end_everything(struct init *init)
{
	char path[64];
	struct pollfd p = {.fd = init->signals, .events = POLLIN};

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	FURCA_AUTO_FD struct furca_fd children = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	while (reap(init, false)) {
		struct signalfd_siginfo info;

		kill_children_listed(children.n);
		if (poll(&p, 1, 5) > 0)
			(void)!read(init->signals, &info, sizeof(info));
	}
}

/* Waits for news: a frame, an end, a cell's report. */
static void serve(struct init *init)
{
	struct pollfd p[2 + MAX_MAKING] = {{.fd = init->control, .events = POLLIN},
					   {.fd = init->signals, .events = POLLIN}};
	struct signalfd_siginfo info;

	for (size_t i = 0; i < init->n_making; i++)
		p[2 + i] = (struct pollfd){.fd = init->making[i].cell.report.n, .events = POLLIN};
	if (poll(p, 2 + init->n_making, -1) < 0) {
		init->ended = errno != EINTR;
		return;
	}
	while (p[1].revents && read(init->signals, &info, sizeof(info)) > 0)
		;				    /* any signal wakes us; only the children matter */
	for (size_t i = init->n_making; i > 0; i--) /* from the end: the last takes the place of one that is done */
		if (p[1 + i].revents)
			on_cell_report(init, i - 1);
	(void)reap(init, true);
	if (p[0].revents)
		on_control(init);
}

void furca_init_loop(int control, const struct furca_overlay *overlay, const char *const *places)
{
	sigset_t all;
	struct init init = {.control = control, .overlay = overlay, .places = places};

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	init.signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (overlay)
		send_upper(&init);
	while (!init.ended && init.signals >= 0)
		serve(&init);
	if (getpid() != 1)
		end_everything(&init);
	_exit(0); /* pid 1 of a namespace takes everything in it along */
}

static int own_only(int control)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		return -errno;
	return furca_fd_close_rest(&control, 1);
}

__attribute__((noreturn)) static void surface_main(int control)
{
	char cwd[4096];

	(void)setsid(); /* a terminal's signals are not for us, nor for what we start */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || own_only(control) < 0)
		_exit(1);
	take_name();
	if (!getcwd(cwd, sizeof(cwd)) || chdir("/") < 0)
		cwd[0] = '\0';
	furca_init_loop(control, NULL, furca_places(cwd));
}

int furca_init_start(struct furca_proc *ret_proc, struct furca_fd *ret_control, struct furca_err *err)
{
	int ends[2];
	sigset_t all, old;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return furca_fail(err, FURCA_E_SYSTEM, errno, "cannot make the init's control channel");
	FURCA_AUTO_FD struct furca_fd ours = furca_fd_own(ends[0]);
	struct furca_fd theirs = furca_fd_own(ends[1]);

	/* No handler of the caller may run in the child, so signals are blocked across the fork. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	pid_t pid = fork();
	if (pid == 0)
		surface_main(theirs.n);
	int sys = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	furca_fd_done(&theirs);
	if (pid < 0)
		return furca_fail(err, FURCA_E_SYSTEM, sys, "cannot fork the init process");
	int r = furca_proc_open(pid, ret_proc);
	if (r == 0)
		r = furca_fd_nonblock(ours.n, 1);
	if (r < 0)
		return furca_fail(err, FURCA_E_SYSTEM, -r,
				  "cannot hold the init process"); /* it ends with its channel */
	*ret_control = furca_fd_take(&ours);
	return 0;
}
