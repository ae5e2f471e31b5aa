/* Descriptors in a copy: each kind is private there, in the state that it had, and the original's is untouched. */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/copy_lab.h"

#include "base/banned.h"

static char dir[] = "/tmp/furca-fds-XXXXXX";
static char text[65536];

static int file(const char *name, const char *content, int flags)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, content, strlen(content)) < 0 || close(fd) < 0)
		return -1;
	return open(path, flags | O_CLOEXEC);
}

static const char *content_of(const char *name)
{
	static char buf[256];
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = fd.n < 0 ? 0 : furca_fd_read_full(fd.n, buf, sizeof(buf) - 1);
	buf[n > 0 ? n : 0] = '\0';
	return buf;
}

static int begin(void)
{
	(void)memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	if (!mkdtemp(dir) || chdir(dir) < 0)
		return __LINE__;
	init_start();
	return 0;
}

static int copy(void (*fn)(int))
{
	return lab_copy(FURCA_BARRIERS_ALL & ~FURCA_BARRIER_THREADS, true, fn, text, sizeof(text));
}

#define HAS(what)                                                                                                      \
	do {                                                                                                           \
		if (!strstr(text, what)) {                                                                             \
			dprintf(2, "%s:%d: no '%s' in:\n%s", __FILE__, __LINE__, what, text);                          \
			return __LINE__;                                                                               \
		}                                                                                                      \
	} while (0)

/* ---- files ---- */

static int rw, append, shared_a, shared_b, gone, mem, sealed, dirfd_, pathfd, large, large_w;

static void files_in_copy(int out)
{
	char buf[16] = "";
	struct stat st;

	dprintf(out, "rw at %ld\n", (long)lseek(rw, 0, SEEK_CUR));
	ssize_t n = read(rw, buf, 2);
	dprintf(out, "rw read %zd %.2s\n", n, buf);
	dprintf(out, "rw write %zd\n", write(rw, "XX", 2));
	dprintf(out, "append %zd flags %d\n", write(append, "more", 4), (fcntl(append, F_GETFL) & O_APPEND) != 0);
	dprintf(out, "file now %s\n", content_of("append"));
	(void)lseek(shared_a, 3, SEEK_SET);
	dprintf(out, "shared %ld\n", (long)lseek(shared_b, 0, SEEK_CUR));
	n = pread(gone, buf, 4, 0);
	dprintf(out, "gone %zd %s\n", n, buf);
	dprintf(out, "gone write %zd links %d\n", write(gone, "!", 1), fstat(gone, &st) == 0 ? (int)st.st_nlink : -1);
	(void)memset(buf, 0, sizeof(buf));
	n = pread(mem, buf, 5, 0);
	dprintf(out, "memfd %zd %s at %ld\n", n, buf, (long)lseek(mem, 0, SEEK_CUR));
	dprintf(out, "memfd write %zd trunc %d\n", write(mem, "??", 2), ftruncate(mem, 1));
	dprintf(out, "seals %d\n", fcntl(sealed, F_GET_SEALS));
	int fd = openat(dirfd_, "by-dirfd", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	dprintf(out, "dirfd %d\n", fd >= 0);
	fd = openat(pathfd, "by-pathfd", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	dprintf(out, "pathfd %d\n", fd >= 0);
	dprintf(out, "fchdir %d relative %d\n", fchdir(dirfd_),
		open("by-fchdir", O_CREAT | O_WRONLY | O_CLOEXEC, 0644) >= 0);
	dprintf(out, "large write %s read %zd\n", write(large, "x", 1) < 0 ? strerror(errno) : "worked",
		pread(large, buf, 4, 0));
	dprintf(out, "large_w %zd\n", write(large_w, "x", 1));
	dprintf(out, "flock %d\n", flock(rw, LOCK_EX | LOCK_NB));
}

static int files(void)
{
	struct stat st;
	int line = begin();

	if (line)
		return line;
	rw = file("rw", "0123456789", O_RDWR);
	REQUIRE(lseek(rw, 4, SEEK_SET) == 4);
	append = file("append", "log:", O_WRONLY | O_APPEND);
	shared_a = file("shared", "abcdef", O_RDONLY);
	shared_b = fcntl(shared_a, F_DUPFD_CLOEXEC, 100);
	gone = file("gone", "gone", O_RDWR);
	REQUIRE(unlink("gone") == 0);
	mem = memfd_create("mine", MFD_CLOEXEC);
	REQUIRE(write(mem, "memfd", 5) == 5);
	sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	REQUIRE(fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW) == 0);
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pathfd = open(dir, O_PATH | O_CLOEXEC);
	large = file("large", "large", O_RDWR);
	REQUIRE(ftruncate(large, 20 << 20) == 0);
	large_w = file("large_w", "", O_WRONLY);
	REQUIRE(ftruncate(large_w, 20 << 20) == 0);
	REQUIRE(copy(files_in_copy) == 0);
	HAS("rw at 4\nrw read 2 45\nrw write 2\n");
	HAS("append 4 flags 1\nfile now log:more\nshared 3\n");
	HAS("gone 4 gone\ngone write 1 links 0\n");
	HAS("memfd 5 memfd at 5\nmemfd write 2 trunc 0\nseals 4\n");
	HAS("dirfd 1\npathfd 1\nfchdir 0 relative 1\n");
	HAS("large write Bad file descriptor read 4\nlarge_w 1\nflock 0\n");
	REQUIRE(lseek(rw, 0, SEEK_CUR) == 4);
	REQUIRE(strcmp(content_of("rw"), "0123456789") == 0);
	REQUIRE(strcmp(content_of("append"), "log:") == 0);
	REQUIRE(lseek(shared_a, 0, SEEK_CUR) == 0);
	REQUIRE(lseek(gone, 0, SEEK_CUR) == 0 && fstat(gone, &st) == 0 && st.st_size == 4);
	REQUIRE(fstat(mem, &st) == 0 && st.st_size == 5);
	REQUIRE(access("by-dirfd", F_OK) < 0 && access("by-pathfd", F_OK) < 0 && access("by-fchdir", F_OK) < 0);
	init_stop();
	return 0;
}

/* ---- pipes, sockets ---- */

static int inner[2], outer_read, outer_write, far_write, pair[2], seq[2], tcp, listener, udp, out_pair;

static void queues_in_copy(int out)
{
	char buf[64] = "";
	ssize_t n;

	n = read(inner[0], buf, sizeof(buf));
	dprintf(out, "pipe %zd %.*s\n", n, (int)n, buf);
	dprintf(out, "pipe write %zd", write(inner[1], "own", 3));
	n = read(inner[0], buf, sizeof(buf));
	dprintf(out, " read %.*s nonblock %d\n", (int)n, buf, (fcntl(inner[0], F_GETFL) & O_NONBLOCK) != 0);
	n = read(outer_read, buf, sizeof(buf));
	dprintf(out, "outer %.*s then %zd\n", (int)n, buf, read(outer_read, buf, 1));
	dprintf(out, "outer write %s\n", write(outer_write, "x", 1) < 0 ? strerror(errno) : "worked");
	n = recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT);
	dprintf(out, "pair %.*s\n", (int)n, buf);
	dprintf(out, "pair send %zd", send(pair[1], "back", 4, 0));
	n = recv(pair[0], buf, sizeof(buf), MSG_DONTWAIT);
	dprintf(out, " recv %.*s\n", (int)n, buf);
	for (int i = 0; i < 2; i++) {
		n = recv(seq[1], buf, sizeof(buf), MSG_DONTWAIT);
		dprintf(out, "seq %.*s\n", (int)n, buf);
	}
	dprintf(out, "tcp send %s", send(tcp, "x", 1, MSG_NOSIGNAL) < 0 ? strerror(errno) : "worked");
	dprintf(out, " recv %zd\n", recv(tcp, buf, 1, MSG_DONTWAIT));
	dprintf(out, "external pair send %s\n", send(out_pair, "x", 1, MSG_NOSIGNAL) < 0 ? strerror(errno) : "worked");
	int flag = 0;
	socklen_t size = sizeof(flag);
	(void)getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &flag, &size);
	dprintf(out, "listener %d accept %s\n", flag,
		accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0 ? strerror(errno) : "worked");
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x08080808)};
	dprintf(out, "udp %s\n",
		sendto(udp, "x", 1, 0, (struct sockaddr *)&name, sizeof(name)) < 0 ? strerror(errno) : "worked");
}

static int queues(void)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(name);
	int ends[2], line = begin();
	char buf[64];

	if (line)
		return line;
	REQUIRE(pipe2(inner, O_CLOEXEC | O_NONBLOCK) == 0 && write(inner[1], "abc", 3) == 3);
	/* Pipes whose other end another process holds: here, a number that the copy must not have. */
	REQUIRE(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "in flight", 9) == 9);
	outer_read = ends[0];
	far_write = ends[1];
	pid_t holder = fork();
	if (holder == 0) {
		(void)pause();
		_exit(0);
	}
	(void)close(far_write);
	REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
	outer_write = ends[1];
	pid_t reader = fork();
	if (reader == 0) {
		(void)pause();
		_exit(0);
	}
	(void)close(ends[0]);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && send(pair[0], "hello", 5, 0) == 5);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, seq) == 0);
	REQUIRE(send(seq[0], "one", 3, 0) == 3 && send(seq[0], "two!", 4, 0) == 4);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	REQUIRE(bind(listener, (struct sockaddr *)&name, size) == 0 && listen(listener, 5) == 0);
	REQUIRE(getsockname(listener, (struct sockaddr *)&name, &size) == 0);
	tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(connect(tcp, (struct sockaddr *)&name, size) == 0);
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	out_pair = ends[0];
	pid_t far = fork();
	if (far == 0) {
		(void)pause();
		_exit(0);
	}
	(void)close(ends[1]);
	REQUIRE(copy(queues_in_copy) == 0);
	HAS("pipe 3 abc\npipe write 3 read own nonblock 1\n");
	HAS("outer in flight then 0\nouter write Bad file descriptor\n");
	HAS("pair hello\npair send 4 recv back\nseq one\nseq two!\n");
	HAS("tcp send Broken pipe recv 0\nexternal pair send Broken pipe\n");
	HAS("listener 1 accept Resource temporarily unavailable\nudp Network is unreachable\n");
	REQUIRE(read(inner[0], buf, sizeof(buf)) == 3);
	REQUIRE(recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT) == 5);
	REQUIRE(recv(pair[0], buf, sizeof(buf), MSG_DONTWAIT) < 0);
	REQUIRE(recv(seq[1], buf, sizeof(buf), MSG_DONTWAIT) == 3 && recv(seq[1], buf, sizeof(buf), MSG_DONTWAIT) == 4);
	REQUIRE(accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0); /* the connection is still there to be accepted */
	(void)kill(holder, SIGKILL);
	(void)kill(reader, SIGKILL);
	(void)kill(far, SIGKILL);
	init_stop();
	return 0;
}

/* ---- counters, sets ---- */

static int event, semaphore, timer, signals, set, outer_set, notify, null, terminal;

static void counters_in_copy(int out)
{
	uint64_t n = 0;
	struct epoll_event events[8];
	struct itimerspec spec;
	char buf[256];

	ssize_t got = read(event, &n, 8);
	dprintf(out, "event %zd %llu\n", got, (unsigned long long)n);
	got = read(semaphore, &n, 8);
	dprintf(out, "semaphore %zd %llu\n", got, (unsigned long long)n);
	(void)timerfd_gettime(timer, &spec);
	dprintf(out, "timer %d every %ld\n", spec.it_value.tv_sec >= 90, (long)spec.it_interval.tv_sec);
	int ready = epoll_wait(set, events, 8, 0);
	dprintf(out, "ready %d data %llx\n", ready, ready > 0 ? (unsigned long long)events[0].data.u64 : 0);
	dprintf(out, "outer ready %d\n", epoll_wait(outer_set, events, 8, 0));
	dprintf(out, "del %d\n", epoll_ctl(set, EPOLL_CTL_DEL, inner[0], NULL));
	(void)raise(SIGUSR1);
	dprintf(out, "signalfd %zd\n", read(signals, buf, sizeof(buf)));
	dprintf(out, "inotify %s\n", read(notify, buf, sizeof(buf)) < 0 ? strerror(errno) : "worked");
	dprintf(out, "null %zd\n", write(null, "x", 1));
	dprintf(out, "tty %s\n", write(terminal, "x", 1) < 0 ? strerror(errno) : "worked");
}

static int counters(void)
{
	sigset_t mask;
	struct epoll_event watch = {.events = EPOLLIN, .data.u64 = 0x1234567890};
	struct itimerspec spec = {{5, 0}, {100, 0}};
	uint64_t n;
	int line = begin();

	if (line)
		return line;
	REQUIRE(pipe2(inner, O_CLOEXEC) == 0 && write(inner[1], "a", 1) == 1);
	event = eventfd(41, EFD_CLOEXEC | EFD_NONBLOCK);
	semaphore = eventfd(3, EFD_CLOEXEC | EFD_SEMAPHORE);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	REQUIRE(timerfd_settime(timer, 0, &spec, NULL) == 0);
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	set = epoll_create1(EPOLL_CLOEXEC);
	outer_set = epoll_create1(EPOLL_CLOEXEC);
	REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, inner[0], &watch) == 0);
	REQUIRE(epoll_ctl(outer_set, EPOLL_CTL_ADD, set, &watch) == 0);
	notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	REQUIRE(copy(counters_in_copy) == 0);
	HAS("event 8 41\nsemaphore 8 1\ntimer 1 every 5\n");
	HAS("ready 1 data 1234567890\nouter ready 1\ndel 0\nsignalfd 128\n");
	HAS("inotify Bad file descriptor\nnull 1\n");
	if (terminal >= 0)
		HAS("tty Bad file descriptor\n");
	REQUIRE(read(event, &n, 8) == 8 && n == 41);
	REQUIRE(epoll_ctl(set, EPOLL_CTL_DEL, inner[0], NULL) == 0);
	init_stop();
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"files are private", files},
		{"queues are private", queues},
		{"counters and sets are private", counters},
	};

	return harness_suite("fds", cases, sizeof(cases) / sizeof(cases[0]));
}
