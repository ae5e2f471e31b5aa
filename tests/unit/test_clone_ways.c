/* The ways a clone is made where numbers cannot be kept, and system calls that a clone interrupts. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/clone_harness.h"

#define WORKERS 4
static pthread_mutex_t recursive, owned;
static atomic_int handlers_run;
static pid_t original;

static void start_workers(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&owned, &attributes);
	(void)harness_pool_start(WORKERS);
	original = getpid();
}

static void *nothing(void *argument)
{
	return argument;
}

/* libc has the right number, and threads can be made and locks taken. */
static int numbers_check(void)
{
	pthread_t thread;

	REQUIRE(getpid() != original && gettid() == getpid() && gettid() == syscall(SYS_gettid));
	REQUIRE(getsid(0) == getpid());
	REQUIRE(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	REQUIRE(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
	REQUIRE(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
	REQUIRE(pthread_mutex_unlock(&recursive) == EPERM);
	REQUIRE(pthread_mutex_lock(&owned) == 0 && pthread_mutex_unlock(&owned) == 0);
	/* A signal to this very thread arrives, so libc knows its number. */
	sigset_t set;
	int sig;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	REQUIRE(pthread_kill(pthread_self(), SIGUSR1) == 0 && sigwait(&set, &sig) == 0 && sig == SIGUSR1);
	return 0;
}

static int way_body(enum furca_clone_role role, enum furca_clone_way way, int threads)
{
	for (int i = 0; i < harness_n(); i++) {
		struct furca_clone_args args = {.role = role, .cell = -1};
		struct furca_clone_report report;

		harness_sleep_us(harness_random(500));
		int r = harness_clone(&args, &report, NULL);
		if (r == 0) {
			int line = numbers_check();
			if (line == 0 && way == FURCA_WAY_ALL_THREADS)
				harness_pool_use();
			if (line == 0 && (way == FURCA_WAY_FORK) != (handlers_run != 0))
				line = __LINE__;
			harness_tell(line);
		}
		REQUIRE(r == 1);
		REQUIRE(report.way == way && (int)report.threads == threads);
		REQUIRE(harness_verdict() == 0);
		if (threads > 1 || way == FURCA_WAY_FORK)
			harness_pool_use();
	}
	return 0;
}

static void count_handler(void)
{
	handlers_run++;
}

static int one_thread(void)
{
	pthread_atfork(NULL, NULL, count_handler);
	original = getpid();
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attributes);
	pthread_mutex_init(&owned, &attributes);
	return way_body(FURCA_CLONE_STATELESS, FURCA_WAY_ONE_THREAD, 1);
}

static int renumbered(void)
{
	pthread_atfork(NULL, NULL, count_handler);
	start_workers();
	return way_body(FURCA_CLONE_SESSION, FURCA_WAY_ALL_THREADS, WORKERS + 1);
}

static int renumbered_copy(void)
{
	pthread_atfork(NULL, NULL, count_handler);
	start_workers();
	return way_body(FURCA_CLONE_COPY, FURCA_WAY_ALL_THREADS, WORKERS + 1);
}

static pthread_mutex_t robust;

static void *hold_robust(void *argument)
{
	pthread_mutex_lock(&robust);
	for (;;)
		pause();
	return argument;
}

/* A thread whose number must not change, so that a copy without a pid namespace is made without the others. */
static void start_holder(void)
{
	pthread_mutexattr_t attributes;
	pthread_t thread;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	pthread_create(&thread, NULL, hold_robust, NULL);
	HARNESS_UNTIL(pthread_mutex_trylock(&robust) == EBUSY || pthread_mutex_unlock(&robust) != 0);
}

static int forked(void)
{
	pthread_atfork(NULL, NULL, count_handler);
	start_workers();
	start_holder();
	return way_body(FURCA_CLONE_COPY, FURCA_WAY_FORK, 1);
}

/* A library's handler that never returns: the clone is refused in time, and the process goes on. */
static void never_return(void)
{
	for (;;)
		pause();
}

static int handler_hangs(void)
{
	struct furca_clone_args args = {.role = FURCA_CLONE_COPY, .cell = -1};
	struct furca_clone_report report;
	struct furca_err err = FURCA_ERR_INIT;
	struct timespec before, after;

	pthread_atfork(never_return, NULL, NULL);
	start_workers();
	start_holder();
	clock_gettime(CLOCK_MONOTONIC, &before);
	int r = harness_clone(&args, &report, &err);
	if (r == 0)
		harness_tell(1);
	clock_gettime(CLOCK_MONOTONIC, &after);
	dprintf(2, "%s\n", err.text);
	REQUIRE(r < 0 && strstr(err.text, "robust mutex"));
	REQUIRE(after.tv_sec - before.tv_sec < 10);
	harness_pool_use();
	return 0;
}

static int robust_refused(void)
{
	struct furca_clone_args args = {.role = FURCA_CLONE_SESSION, .cell = -1};
	struct furca_clone_report report;
	struct furca_err err = FURCA_ERR_INIT;

	start_workers();
	pthread_mutex_lock(&owned);
	int r = harness_clone(&args, &report, &err);
	if (r == 0)
		harness_tell(1);
	REQUIRE(r < 0 && strstr(err.text, "robust mutex"));
	pthread_mutex_unlock(&owned);
	harness_pool_use();
	return 0;
}

/* Calls that wait without a time limit: a clone disturbs none, neither here nor there. */
enum {
	READ_PIPE,
	POLL,
	PPOLL,
	SELECT,
	PSELECT,
	EPOLL_WAIT,
	EPOLL_PWAIT,
	SLEEP_UNTIL,
	PAUSE,
	SIGSUSPEND,
	SIGWAIT,
	ACCEPT,
	RECV,
	FLOCK,
	SEM_WAIT,
	SEM_UNTIL,
	COND_WAIT,
	COND_UNTIL,
	MUTEX,
	JOIN,
	MSGRCV,
	SEMOP,
	EVENTFD,
	KINDS
};
static atomic_int returned[KINDS];
static int pipe_fds[2], sockets[2], listener, epoll, event, queue, semaphores, locked;
static sem_t semaphore;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lone = PTHREAD_MUTEX_INITIALIZER;
static pthread_t sleeper;

static struct timespec in_an_hour(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_sec += 3600;
	return t;
}

/* For another thread, or process. */
static void wait_for_another(int kind)
{
	struct timespec real = in_an_hour(CLOCK_REALTIME);
	pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	switch (kind) {
	case FLOCK:
		flock(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), LOCK_EX);
		break;
	case SEM_WAIT:
		sem_wait(&semaphore);
		break;
	case SEM_UNTIL:
		sem_timedwait(&semaphore, &real);
		break;
	case COND_WAIT:
		pthread_mutex_lock(&own);
		pthread_cond_wait(&never, &own);
		break;
	case COND_UNTIL:
		pthread_mutex_lock(&own);
		pthread_cond_timedwait(&never, &own, &real);
		break;
	case MUTEX:
		pthread_mutex_lock(&held);
		break;
	case JOIN:
		pthread_join(sleeper, NULL);
		break;
	}
}

static void wait_in(int kind)
{
	struct timespec monotonic = in_an_hour(CLOCK_MONOTONIC);
	struct pollfd wanted = {.fd = pipe_fds[0], .events = POLLIN};
	struct sembuf take = {0, -1, 0};
	struct epoll_event got;
	sigset_t set;
	fd_set fds;
	uint64_t number;
	char buf[64];
	int sig;

	FD_ZERO(&fds);
	FD_SET(pipe_fds[0], &fds);
	sigemptyset(&set);
	switch (kind) {
	case READ_PIPE:
		(void)!read(pipe_fds[0], buf, 1);
		break;
	case POLL:
		poll(&wanted, 1, -1);
		break;
	case PPOLL:
		ppoll(&wanted, 1, NULL, NULL);
		break;
	case SELECT:
		select(pipe_fds[0] + 1, &fds, NULL, NULL, NULL);
		break;
	case PSELECT:
		pselect(pipe_fds[0] + 1, &fds, NULL, NULL, NULL, NULL);
		break;
	case EPOLL_WAIT:
		epoll_wait(epoll, &got, 1, -1);
		break;
	case EPOLL_PWAIT:
		epoll_pwait(epoll, &got, 1, -1, &set);
		break;
	case SLEEP_UNTIL:
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &monotonic, NULL);
		break;
	case PAUSE:
		pause();
		break;
	case SIGSUSPEND:
		sigsuspend(&set);
		break;
	case SIGWAIT:
		sigaddset(&set, SIGUSR2);
		sigwait(&set, &sig);
		break;
	case ACCEPT:
		accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		break;
	case RECV:
		recv(sockets[0], buf, 1, 0);
		break;
	case MSGRCV:
		msgrcv(queue, buf, 1, 0, 0);
		break;
	case SEMOP:
		semop(semaphores, &take, 1);
		break;
	case EVENTFD:
		(void)!read(event, &number, 8);
		break;
	default:
		wait_for_another(kind);
	}
}

static void *wait_kind(void *argument)
{
	int kind = (int)(long)argument;

	wait_in(kind);
	returned[kind] = 1;
	for (;;)
		pause();
	return argument;
}

static void *sleep_for_ever(void *argument)
{
	pthread_mutex_lock(&lone);
	return argument;
}

static int undisturbed(void)
{
	harness_sleep_us(5000);
	for (int i = 0; i < KINDS; i++)
		if (returned[i])
			dprintf(2, "kind %d came back\n", i);
	for (int i = 0; i < KINDS; i++)
		REQUIRE(!returned[i]);
	return 0;
}

static int make_objects(void)
{
	struct epoll_event wanted = {.events = EPOLLIN};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr any = {.sa_family = AF_UNIX};
	REQUIRE(bind(listener, &any, sizeof(any.sa_family)) == 0 && listen(listener, 1) == 0);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_fds[0], &wanted) == 0);
	event = eventfd(0, EFD_CLOEXEC);
	queue = msgget(IPC_PRIVATE, 0600);
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	locked = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	REQUIRE(flock(locked, LOCK_EX) == 0);
	sem_init(&semaphore, 0, 0);
	pthread_mutex_lock(&held);
	pthread_mutex_lock(&lone);
	return 0;
}

static int interrupted(void)
{
	pthread_t thread;
	int line = make_objects();

	REQUIRE(line == 0);
	pthread_create(&sleeper, NULL, sleep_for_ever, NULL);
	for (long i = 0; i < KINDS; i++)
		pthread_create(&thread, NULL, wait_kind, (void *)i);
	harness_sleep_us(50000);
	REQUIRE(undisturbed() == 0);
	for (int i = 0; i < harness_n() && line == 0; i++) {
		line = harness_try(undisturbed);
		if (line == 0)
			line = undisturbed();
	}
	msgctl(queue, IPC_RMID, NULL);
	semctl(semaphores, 0, IPC_RMID);
	return line;
}

/* A signal that comes while its thread stands still ends the call that the thread waits in, as ever. */
static struct {
	atomic_int tid, seen, over;
	atomic_long sent, late;
} * shared;
static atomic_int hits;

static void hit(int sig)
{
	(void)sig;
	hits++;
}

static void *wait_for_signals(void *argument)
{
	struct pollfd nothing_comes = {.fd = pipe_fds[0], .events = POLLIN};
	char byte;

	shared->tid = (int)syscall(SYS_gettid);
	while (!shared->over) {
		/* One that the kernel restarts by itself, one that it does not. */
		if (hits == shared->seen && (hits & 1 ? read(pipe_fds[0], &byte, 1) : poll(&nothing_comes, 1, -1)) > 0)
			break;
		shared->seen = hits;
	}
	return argument;
}

/* Another process: sends, waits for the answer, sends again. */
static _Noreturn void send_signals(pid_t pid)
{
	unsigned seed = 1;

	while (!shared->over) {
		int before = shared->seen;

		syscall(SYS_tgkill, pid, shared->tid, SIGUSR1);
		shared->sent++;
		for (int wait = 0; wait < 2000 && shared->seen == before && !shared->over; wait++)
			harness_sleep_us(100);
		shared->late += shared->seen == before;
		harness_sleep_us(rand_r(&seed) % 300);
	}
	_exit(0);
}

static int signals_body(void)
{
	struct sigaction action = {.sa_handler = hit};
	pthread_t thread;

	REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	sigaction(SIGUSR1, &action, NULL);
	REQUIRE(pthread_create(&thread, NULL, wait_for_signals, NULL) == 0);
	while (!shared->tid)
		harness_sleep_us(100);
	pid_t original_pid = getpid(), sender = fork();
	if (sender == 0)
		send_signals(original_pid);
	for (int i = 0; i < harness_n(); i++) {
		harness_sleep_us(harness_random(500));
		REQUIRE(harness_try(undisturbed) == 0);
	}
	shared->over = 1;
	syscall(SYS_tgkill, original_pid, shared->tid, SIGUSR1);
	waitpid(sender, NULL, 0);
	dprintf(2, "%ld signals, %ld late\n", (long)shared->sent, (long)shared->late);
	/* Some come in the instant before the call begins; that is so without clones, too. */
	REQUIRE(shared->sent > harness_n() / 2 && shared->late <= 2 + shared->sent / 200);
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"one thread, no cell", one_thread},	{"renumbered threads", renumbered},
		{"a renumbered copy", renumbered_copy}, {"libc's fork", forked},
		{"a handler hangs", handler_hangs},	{"robust lock held", robust_refused},
		{"interrupted calls", interrupted},	{"signals meanwhile", signals_body},
	};

	return harness_main("clone_ways", cases, sizeof(cases) / sizeof(cases[0]));
}
