/* Clones of threaded processes: what lived before the clone lives on in it, and the original does not notice. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/clone_harness.h"

/* A pool: a mutex, a condition variable, a queue. */
#define QUEUE 1024
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int queue[QUEUE], head, tail, finished, quit;
static long sum;
static int pool_threads;
static pthread_t pool[256];

static void *worker(void *argument)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		while (head == tail && !quit)
			pthread_cond_wait(&more, &mutex);
		if (head == tail) {
			pthread_mutex_unlock(&mutex);
			return argument;
		}
		int job = queue[head++ % QUEUE];
		pthread_mutex_unlock(&mutex);
		/* malloc's arenas are exercised, too. */
		char *memory = malloc((size_t)job + 100);
		memset(memory, job, (size_t)job + 100);
		long good = memory[99] == (char)job;
		free(memory);
		pthread_mutex_lock(&mutex);
		sum += good ? job : -1000000;
		if (++finished == tail)
			pthread_cond_signal(&done);
		pthread_mutex_unlock(&mutex);
	}
}

static int pool_run(int jobs)
{
	long want = 0;

	pthread_mutex_lock(&mutex);
	head = tail = finished = 0;
	sum = 0;
	for (int i = 0; i < jobs; i++) {
		queue[tail++ % QUEUE] = i;
		want += i;
	}
	pthread_cond_broadcast(&more);
	while (finished != tail)
		pthread_cond_wait(&done, &mutex);
	long got = sum;
	pthread_mutex_unlock(&mutex);
	return got == want;
}

static pid_t number;

static int pool_check(void)
{
	pthread_t fresh;

	REQUIRE(getpid() == number && syscall(SYS_gettid) == number);
	REQUIRE(pool_run(200) && pool_run(200));
	pthread_mutex_lock(&mutex);
	quit = 1;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&mutex);
	for (long i = 0; i < pool_threads; i++) {
		void *value;
		REQUIRE(pthread_join(pool[i], &value) == 0 && value == (void *)i);
	}
	quit = 0;
	REQUIRE(pthread_create(&fresh, NULL, worker, NULL) == 0 && pool_run(100));
	return 0;
}

static int pool_body(void)
{
	number = getpid();
	for (long i = 0; i < pool_threads; i++)
		REQUIRE(pthread_create(&pool[i], NULL, worker, (void *)i) == 0);
	for (int i = 0; i < harness_n(); i++) {
		REQUIRE(pool_run(50));
		/* Odd: the workers sleep; even: they are still waking up. */
		if (i & 1)
			harness_sleep_us(harness_random(300));
		REQUIRE(harness_try(pool_check) == 0);
		REQUIRE(pool_run(50));
	}
	return 0;
}

static void *answer(void *argument)
{
	return argument;
}

static int single_check(void)
{
	pthread_t fresh;
	void *value;

	REQUIRE(getpid() == number && syscall(SYS_gettid) == number);
	REQUIRE(pthread_create(&fresh, NULL, answer, (void *)7L) == 0);
	REQUIRE(pthread_join(fresh, &value) == 0 && value == (void *)7L);
	return 0;
}

static int single_body(void)
{
	number = getpid();
	for (int i = 0; i < harness_n(); i++)
		REQUIRE(harness_try(single_check) == 0);
	return single_check();
}

static int pool_of_8(void)
{
	pool_threads = 8;
	return pool_body();
}

static int pool_of_64(void)
{
	pool_threads = 64;
	return pool_body();
}

/* The life of threads in the clone: joining, cancelling, killing, ending, reusing stacks. */
#define WAITERS 8
#define DETACHED 4
static sem_t go, gone;
static pthread_key_t key;
static atomic_int destroyed, cancelled, signalled;
static __thread long local;
static pthread_t waiters[WAITERS], victim, joiner, sleeper;

static void destroy(void *p)
{
	destroyed++;
	free(p);
}

static void count_signal(int sig)
{
	(void)sig;
	signalled++;
}

static void count_cancel(void *argument)
{
	(void)argument;
	cancelled++;
}

static void *wait_for_go(void *argument)
{
	local = (long)argument;
	pthread_setspecific(key, malloc(32));
	while (sem_wait(&go) != 0)
		;
	return local == (long)argument ? argument : (void *)-1L;
}

static void *leave_detached(void *argument)
{
	pthread_detach(pthread_self());
	while (sem_wait(&go) != 0)
		;
	sem_post(&gone);
	return argument;
}

static void *sleep_for_ever(void *argument)
{
	pthread_cleanup_push(count_cancel, NULL);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return argument;
}

static void *join_victim(void *argument)
{
	void *value = argument;

	return pthread_join(victim, &value) == 0 ? value : (void *)-1L;
}

static void *count_local(void *argument)
{
	(void)argument;
	return (void *)++local;
}

static int lives_check(void)
{
	void *value;

	REQUIRE(pthread_kill(sleeper, SIGUSR1) == 0);
	HARNESS_UNTIL(signalled >= 1);
	REQUIRE(signalled >= 1);
	REQUIRE(pthread_cancel(sleeper) == 0);
	REQUIRE(pthread_join(sleeper, &value) == 0 && value == PTHREAD_CANCELED && cancelled == 1);
	for (int i = 0; i < WAITERS + 1 + DETACHED; i++)
		sem_post(&go);
	for (long i = 0; i < WAITERS; i++)
		REQUIRE(pthread_join(waiters[i], &value) == 0 && value == (void *)(i + 1));
	for (int i = 0; i < DETACHED; i++)
		while (sem_wait(&gone) != 0)
			;
	REQUIRE(pthread_join(joiner, &value) == 0 && value == (void *)777L);
	REQUIRE(destroyed == WAITERS + 1);
	for (int i = 0; i < 50; i++) {
		pthread_t fresh;
		REQUIRE(pthread_create(&fresh, NULL, count_local, NULL) == 0);
		REQUIRE(pthread_join(fresh, &value) == 0 && value == (void *)1L);
	}
	return 0;
}

static int lives_body(void)
{
	struct sigaction action = {.sa_handler = count_signal};

	sem_init(&go, 0, 0);
	sem_init(&gone, 0, 0);
	pthread_key_create(&key, destroy);
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < harness_n(); i++) {
		pthread_t detached;

		destroyed = cancelled = signalled = 0;
		for (long k = 0; k < WAITERS; k++)
			pthread_create(&waiters[k], NULL, wait_for_go, (void *)(k + 1));
		pthread_create(&victim, NULL, wait_for_go, (void *)777L);
		pthread_create(&joiner, NULL, join_victim, NULL);
		pthread_create(&sleeper, NULL, sleep_for_ever, NULL);
		for (int k = 0; k < DETACHED; k++)
			pthread_create(&detached, NULL, leave_detached, NULL);
		harness_sleep_us(harness_random(2000));
		REQUIRE(harness_try(lives_check) == 0);
		/* The original is unharmed. */
		REQUIRE(lives_check() == 0);
	}
	return 0;
}

/* The caller is not the main thread, which is joining it, spinning, or gone. */
enum { JOINING, SPINNING, GONE };
static int main_is;
static atomic_long rounds;
static atomic_int over;
static pthread_t driver_thread;
static pid_t driver_tid;

static int driver_check(void)
{
	char name[16];
	long before = rounds;

	REQUIRE(local == 42 && pthread_equal(driver_thread, pthread_self()));
	REQUIRE(syscall(SYS_gettid) == driver_tid && getpid() == number && driver_tid != number);
	REQUIRE(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "driver") == 0);
	if (main_is == SPINNING)
		HARNESS_UNTIL(rounds > before + 5);
	REQUIRE(main_is != SPINNING || rounds > before + 5);
	return 0;
}

static void *drive(void *argument)
{
	(void)argument;
	local = 42;
	driver_thread = pthread_self();
	driver_tid = (pid_t)syscall(SYS_gettid);
	prctl(PR_SET_NAME, "driver");
	for (int i = 0; i < harness_n(); i++) {
		harness_sleep_us(harness_random(1000));
		int verdict = harness_try(driver_check);
		if (verdict) {
			over = 1;
			return (void *)(long)verdict;
		}
	}
	over = 1;
	if (main_is == GONE)
		_exit(0);
	return NULL;
}

static int driver_body(void)
{
	pthread_t driver;
	void *value;

	number = getpid();
	REQUIRE(pthread_create(&driver, NULL, drive, NULL) == 0);
	if (main_is == SPINNING)
		while (!over)
			rounds++;
	if (main_is == GONE)
		pthread_exit(NULL);
	REQUIRE(pthread_join(driver, &value) == 0 && value == NULL);
	return 0;
}

static int main_joins(void)
{
	main_is = JOINING;
	return driver_body();
}

static int main_spins(void)
{
	main_is = SPINNING;
	return driver_body();
}

static int main_is_gone(void)
{
	main_is = GONE;
	return driver_body();
}

int main(void)
{
	static const struct harness_case cases[] = {
		{"single thread", single_body},	  {"pool of 8", pool_of_8},   {"pool of 64", pool_of_64},
		{"lives of threads", lives_body}, {"main joins", main_joins}, {"main spins", main_spins},
		{"main is gone", main_is_gone},
	};

	return harness_main("clone", cases, sizeof(cases) / sizeof(cases[0]));
}
