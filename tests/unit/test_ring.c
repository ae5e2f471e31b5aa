#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge/wire/ring.h"
#include "tests/unit/harness.h"
#include "tests/unit/random.h"

static struct furca_ring ours, theirs;
static uint8_t bytes[FURCA_RING_BYTES];

static void setup(void)
{
	struct furca_fd memory = FURCA_FD_NONE;

	ck_assert_int_eq(furca_ring_new(&ours, &memory), 0);
	ck_assert_int_eq(furca_ring_open(&theirs, memory.n), 0);
	furca_fd_done(&memory);
}

static void teardown(void)
{
	furca_ring_done(&ours);
	furca_ring_done(&theirs);
	furca_ring_done(&theirs);
}

START_TEST(frames_come_whole_and_in_order)
{
	uint8_t data[5000];
	uint32_t written = 0, read = 0, wrong = 0;
	uint64_t random = 1;

	for (unsigned i = 0; i < 20000; i++) {
		size_t n = furca_test_random(&random) % sizeof(data);

		for (size_t k = 0; k < n; k++)
			data[k] = (uint8_t)(written + k);
		if (furca_ring_write(&ours, data, n) == 1)
			written += (uint32_t)n;
		if (furca_test_random(&random) % 3 == 0) {
			ssize_t got = furca_ring_read(&theirs, bytes);

			for (ssize_t k = 0; k < got; k++)
				wrong += bytes[k] != (uint8_t)(read + (uint32_t)k);
			ck_assert_uint_eq(wrong, 0);
			read += (uint32_t)got;
			ck_assert_uint_eq(read, written);
		}
	}
	ck_assert_uint_gt(written, 4 * FURCA_RING_BYTES);
}
END_TEST

START_TEST(what_does_not_fit_is_not_begun)
{
	ck_assert_int_eq(furca_ring_write(&ours, bytes, FURCA_RING_BYTES - 1), 1);
	ck_assert_int_eq(furca_ring_write(&ours, "ab", 2), 0);
	ck_assert_int_eq(furca_ring_write(&ours, "a", 1), 1);
	ck_assert_int_eq(furca_ring_write(&ours, bytes, SIZE_MAX), 0);
	ck_assert_int_eq((int)furca_ring_read(&theirs, bytes), (int)FURCA_RING_BYTES);
	ck_assert_int_eq((int)furca_ring_read(&theirs, bytes), 0);
}
END_TEST

/* Whatever the other side writes into the shared words: each call gives an error or stays within the ring, and no memory around it is touched. */
START_TEST(hostile_indexes_are_refused_or_harmless)
{
	struct {
		uint8_t before[4096], bytes[FURCA_RING_BYTES], behind[4096];
	} *guarded = calloc(1, sizeof(*guarded));
	uint8_t data[1000] = {0};
	uint64_t random = 7;
	unsigned refused = 0;
	bool by_socket;

	ck_assert_ptr_nonnull(guarded);
	for (unsigned i = 0; i < 200000; i++) {
		uint32_t value = (uint32_t)furca_test_random(&random);
		uint32_t near = ours.head + (uint32_t)(furca_test_random(&random) % 9) - 4;
		struct furca_ring_way *way = furca_test_random(&random) % 2 ? theirs.in : theirs.out;

		atomic_store(furca_test_random(&random) % 2 ? &way->head : &way->tail,
			     furca_test_random(&random) % 2 ? value : near);
		atomic_store(&way->asleep, value % 7);
		atomic_store(&way->bell, value);
		int r = furca_ring_write(&theirs, data, furca_test_random(&random) % sizeof(data));
		ssize_t n = furca_ring_read(&theirs, guarded->bytes);
		ck_assert(r == 0 || r == 1 || r == -EPROTO);
		ck_assert(n == -EPROTO || (n >= 0 && n <= (ssize_t)FURCA_RING_BYTES));
		refused += (r < 0) + (n < 0);
		(void)furca_ring_heard(&theirs, &by_socket);
		(void)furca_ring_ring(&theirs, value % 2);
	}
	ck_assert_uint_gt(refused, 1000);
	for (size_t i = 0; i < sizeof(guarded->before); i++)
		ck_assert(!guarded->before[i] && !guarded->behind[i]);
	free(guarded);
}
END_TEST

START_TEST(memory_that_could_shrink_is_not_mapped)
{
	static const struct {
		off_t size;
		int seals;
	} bad[] = {{FURCA_RING_MEMORY, F_SEAL_SHRINK | F_SEAL_GROW},
		   {FURCA_RING_MEMORY, F_SEAL_SEAL},
		   {4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
		   {FURCA_RING_MEMORY + 1L, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL}};
	struct furca_ring ring = {0};

	for (size_t i = 0; i < FURCA_COUNT(bad); i++) {
		FURCA_AUTO_FD struct furca_fd memory = furca_fd_own(memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING));

		ck_assert_int_eq(ftruncate(memory.n, bad[i].size), 0);
		ck_assert_int_eq(fcntl(memory.n, F_ADD_SEALS, bad[i].seals), 0);
		ck_assert_int_eq(furca_ring_open(&ring, memory.n), -EPERM);
		ck_assert_ptr_null(ring.memory);
	}
	ck_assert_int_lt(furca_ring_open(&ring, STDIN_FILENO), 0);
}
END_TEST

static void *answer(void *arg)
{
	bool by_socket;

	for (unsigned i = 0; i < 2000;) {
		while (!furca_ring_heard(&theirs, &by_socket))
			if (furca_ring_sleep(&theirs, FURCA_RING_FUTEX))
				furca_ring_wait(&theirs, 1000);
		ssize_t n = furca_ring_read(&theirs, bytes);
		if (n <= 0)
			continue;
		i += (unsigned)n;
		(void)furca_ring_write(&theirs, bytes, (size_t)n);
		(void)furca_ring_ring(&theirs, false);
	}
	return NULL;
}

START_TEST(no_wake_is_lost)
{
	pthread_t thread;
	uint8_t *back = malloc(FURCA_RING_BYTES);
	bool by_socket;

	ck_assert_int_eq(pthread_create(&thread, NULL, answer, NULL), 0);
	for (unsigned i = 0; i < 2000; i++) {
		ssize_t n = 0;

		ck_assert_int_eq(furca_ring_write(&ours, "x", 1), 1);
		(void)furca_ring_ring(&ours, false);
		while (n == 0) {
			while (!furca_ring_heard(&ours, &by_socket))
				if (furca_ring_sleep(&ours, FURCA_RING_FUTEX))
					furca_ring_wait(&ours, 1000);
			n = furca_ring_read(&ours, back);
		}
		ck_assert_int_eq((int)n, 1);
	}
	(void)pthread_join(thread, NULL);
	free(back);
}
END_TEST

START_TEST(a_fork_has_no_part_of_it)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		unsigned char there;

		_exit(mincore(ours.memory, 4096, &there) == 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, frames_come_whole_and_in_order);
	tcase_add_test(tc, what_does_not_fit_is_not_begun);
	tcase_add_test(tc, hostile_indexes_are_refused_or_harmless);
	tcase_add_test(tc, memory_that_could_shrink_is_not_mapped);
	tcase_add_test(tc, no_wake_is_lost);
	tcase_add_test(tc, a_fork_has_no_part_of_it);
}

int main(void)
{
	return furca_test_main("ring", add);
}
