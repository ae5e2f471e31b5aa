/* Clones of threaded processes: what lived before the clone lives on in it, and the original does not notice. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
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

static int pool_of(int threads)
{
	pool_threads = threads;
	return harness_run(pool_body);
}

START_TEST(pool_of_8)
{
	ck_assert_int_eq(pool_of(8), 0);
}
END_TEST

START_TEST(pool_of_64)
{
	ck_assert_int_eq(pool_of(64), 0);
}
END_TEST

START_TEST(single_thread)
{
	ck_assert_int_eq(harness_run(single_body), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clone");
	TCase *cases = tcase_create("threads");
	SRunner *runner = srunner_create(suite);

	tcase_set_timeout(cases, 3600);
	tcase_add_test(cases, single_thread);
	tcase_add_test(cases, pool_of_8);
	tcase_add_test(cases, pool_of_64);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
