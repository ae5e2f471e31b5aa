/* A clone that fails or dies at any step: the caller gets an error, its threads go on, the clone is gone, and the next one works. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tests/unit/clone_harness.h"

static atomic_long rounds;

static void *count(void *argument)
{
	for (;;) {
		rounds++;
		harness_sleep_us(300);
	}
	return argument;
}

static int well(void)
{
	long before = rounds;

	HARNESS_UNTIL(rounds > before + 5);
	REQUIRE(rounds > before + 5);
	return 0;
}

static void arm(const char *fault)
{
	if (fault)
		setenv("FURCA_FAULT", fault, 1);
	else
		unsetenv("FURCA_FAULT");
	furca_fault_init();
}

static int fails(const char *fault, enum furca_clone_role role, const char *words, int64_t at_most_us)
{
	struct furca_clone_args args = {.role = role};
	struct furca_clone_report report;
	struct furca_err err = FURCA_ERR_INIT;
	int64_t begin = furca_now_us();

	arm(fault);
	int r = harness_clone(&args, &report, &err);
	if (r == 0)
		harness_tell(0);
	arm(NULL);
	dprintf(2, "%s: %d %s\n", fault, r, err.text);
	REQUIRE(r < 0 && strstr(err.text, words));
	REQUIRE(furca_now_us() - begin < at_most_us + 3000000);
	REQUIRE(well() == 0);
	REQUIRE(harness_try(well) == 0);
	return 0;
}

static const struct {
	const char *fault, *words;
} cases_of_fault[] = {
	{"clone_before:fail", "clone_before"},	 {"clone_child:fail", "could not start"},
	{"clone_child:kill", "ended before"},	 {"clone_barriers:fail", "could not be completed"},
	{"clone_barriers:kill", "ended before"}, {"clone_parent:fail", "clone_parent"},
};

static int all_faults(void)
{
	for (size_t i = 0; i < sizeof(cases_of_fault) / sizeof(cases_of_fault[0]); i++)
		for (int role = FURCA_CLONE_COPY; role <= FURCA_CLONE_SNAPSHOT; role++) {
			int line =
				fails(cases_of_fault[i].fault, (enum furca_clone_role)role, cases_of_fault[i].words, 0);
			if (line)
				return line;
		}
	return 0;
}

static int threads_body(void)
{
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		REQUIRE(pthread_create(&thread, NULL, count, NULL) == 0);
	return all_faults();
}

/* A clone that stands still itself is waited for, but not for ever. */
static int stopped_body(void)
{
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, count, NULL) == 0);
	return fails("clone_child:stop", FURCA_CLONE_COPY, "not complete in time", 5000000);
}

int main(void)
{
	static const struct harness_case cases[] = {{"faults", threads_body}, {"a clone that stops", stopped_body}};

	return harness_main("clone_fault", cases, sizeof(cases) / sizeof(cases[0]));
}
