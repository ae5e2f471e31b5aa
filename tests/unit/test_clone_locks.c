/* Locks of every kind, held by threads that were stopped: in the clone they are held by the same threads, and work. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/unit/clone_harness.h"

enum { NORMAL, RECURSIVE, ERRORCHECK, ROBUST, INHERIT, ROBUST_INHERIT, ADAPTIVE, KINDS };
static pthread_mutex_t mutex[KINDS], orphan;
static pthread_rwlock_t written, shared;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static atomic_int go, held, got[KINDS], wrong;
static pthread_t owner, contenders[KINDS], rwlocker, waiters[2];

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition) && !wrong)                                                                            \
			wrong = __LINE__;                                                                              \
	} while (0)

static void *own(void *argument)
{
	for (int i = 0; i < KINDS; i++)
		CHECK(pthread_mutex_lock(&mutex[i]) == 0);
	CHECK(pthread_mutex_lock(&mutex[RECURSIVE]) == 0);
	CHECK(pthread_rwlock_wrlock(&written) == 0);
	CHECK(pthread_rwlock_rdlock(&shared) == 0);
	pthread_spin_lock(&spin);
	flockfile(stdout);
	CHECK(pthread_mutex_lock(&orphan) == 0);
	held = 1;
	while (!go)
		harness_sleep_us(100);
	CHECK(pthread_mutex_lock(&mutex[ERRORCHECK]) == EDEADLK);
	CHECK(pthread_mutex_trylock(&mutex[RECURSIVE]) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_mutex_unlock(&mutex[RECURSIVE]) == 0);
	for (int i = 0; i < KINDS; i++)
		CHECK(i == RECURSIVE || pthread_mutex_unlock(&mutex[i]) == 0);
	CHECK(pthread_rwlock_unlock(&written) == 0);
	CHECK(pthread_rwlock_unlock(&shared) == 0);
	pthread_spin_unlock(&spin);
	funlockfile(stdout);
	/* Ends holding `orphan`. */
	return argument;
}

static void *contend(void *argument)
{
	int kind = (int)(long)argument;

	CHECK(pthread_mutex_lock(&mutex[kind]) == 0);
	got[kind]++;
	CHECK(pthread_mutex_unlock(&mutex[kind]) == 0);
	return NULL;
}

static void *lock_both(void *argument)
{
	CHECK(pthread_rwlock_rdlock(&written) == 0);
	CHECK(pthread_rwlock_unlock(&written) == 0);
	CHECK(pthread_rwlock_wrlock(&shared) == 0);
	CHECK(pthread_rwlock_unlock(&shared) == 0);
	return argument;
}

static void *meet(void *argument)
{
	pthread_barrier_wait(&barrier);
	return argument;
}

/* The same in the clone and, afterwards, in the original. */
static int finish(void)
{
	struct timespec soon;

	for (int i = 0; i < KINDS; i++)
		REQUIRE(got[i] == 0);
	REQUIRE(pthread_mutex_trylock(&mutex[NORMAL]) == EBUSY);
	REQUIRE(pthread_mutex_unlock(&mutex[ERRORCHECK]) == EPERM);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 1000000;
	if (soon.tv_nsec > 999999999)
		soon.tv_sec++, soon.tv_nsec -= 1000000000;
	REQUIRE(pthread_mutex_timedlock(&mutex[INHERIT], &soon) == ETIMEDOUT);
	go = 1;
	pthread_join(owner, NULL);
	for (int i = 0; i < KINDS; i++)
		pthread_join(contenders[i], NULL);
	pthread_join(rwlocker, NULL);
	pthread_barrier_wait(&barrier);
	pthread_join(waiters[0], NULL);
	pthread_join(waiters[1], NULL);
	if (wrong)
		return wrong;
	for (int i = 0; i < KINDS; i++)
		REQUIRE(got[i] == 1);
	REQUIRE(pthread_mutex_lock(&orphan) == EOWNERDEAD);
	REQUIRE(pthread_mutex_consistent(&orphan) == 0 && pthread_mutex_unlock(&orphan) == 0);
	for (int i = 0; i < KINDS; i++)
		REQUIRE(pthread_mutex_lock(&mutex[i]) == 0 && pthread_mutex_unlock(&mutex[i]) == 0);
	return 0;
}

static void prepare_mutex(pthread_mutex_t *which, int kind)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	if (kind == RECURSIVE)
		pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	if (kind == ERRORCHECK)
		pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	if (kind == ADAPTIVE)
		pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
	if (kind == ROBUST || kind == ROBUST_INHERIT)
		pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (kind == INHERIT || kind == ROBUST_INHERIT)
		pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(which, &attributes);
}

static void prepare(void)
{
	for (int i = 0; i < KINDS; i++)
		prepare_mutex(&mutex[i], i);
	prepare_mutex(&orphan, ROBUST);
	pthread_rwlock_init(&written, NULL);
	pthread_rwlock_init(&shared, NULL);
	pthread_spin_init(&spin, 0);
	pthread_barrier_init(&barrier, NULL, 3);
	go = held = wrong = 0;
	memset(got, 0, sizeof(got));
}

static int locks_body(void)
{
	for (int i = 0; i < harness_n(); i++) {
		prepare();
		pthread_create(&owner, NULL, own, NULL);
		while (!held)
			harness_sleep_us(50);
		for (long k = 0; k < KINDS; k++)
			pthread_create(&contenders[k], NULL, contend, (void *)k);
		pthread_create(&rwlocker, NULL, lock_both, NULL);
		pthread_create(&waiters[0], NULL, meet, NULL);
		pthread_create(&waiters[1], NULL, meet, NULL);
		harness_sleep_us(1000 + harness_random(1500));
		REQUIRE(harness_try(finish) == 0);
		REQUIRE(finish() == 0);
	}
	return 0;
}

int main(void)
{
	static const struct harness_case cases[] = {{"locks", locks_body}};

	return harness_main("clone_locks", cases, 1);
}
