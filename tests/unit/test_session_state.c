#include <check.h>
#include <stdlib.h>

#include "engine/session_state.h"

#include "tests/unit/harness.h"

static enum furca_session_state walk(enum furca_session_state state, const enum furca_session_event *events, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int next = furca_session_next(state, events[i]);

		ck_assert_msg(next >= 0, "%s cannot happen in %s", furca_session_event_name(events[i]),
			      furca_session_state_name(state));
		state = (enum furca_session_state)next;
	}
	return state;
}

#define WALK(...)                                                                                                      \
	walk(FURCA_S_NEW, (const enum furca_session_event[]){__VA_ARGS__},                                             \
	     sizeof((const enum furca_session_event[]){__VA_ARGS__}) / sizeof(enum furca_session_event))

START_TEST(a_life)
{
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_READY, FURCA_EV_CALL, FURCA_EV_DONE), FURCA_S_IDLE);
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_READY, FURCA_EV_CALL, FURCA_EV_LOST, FURCA_EV_READY),
			 FURCA_S_IDLE);
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_READY, FURCA_EV_CALL, FURCA_EV_EMPTY, FURCA_EV_START),
			 FURCA_S_STARTING);
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_EMPTY), FURCA_S_NEW);
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_READY, FURCA_EV_LOST, FURCA_EV_LOST, FURCA_EV_EMPTY),
			 FURCA_S_NEW);
	ck_assert_int_eq(WALK(FURCA_EV_START, FURCA_EV_READY, FURCA_EV_CLOSE, FURCA_EV_ENDED), FURCA_S_DEAD);
}
END_TEST

START_TEST(what_cannot_happen)
{
	ck_assert_int_lt(furca_session_next(FURCA_S_NEW, FURCA_EV_CALL), 0);
	ck_assert_int_lt(furca_session_next(FURCA_S_BUSY, FURCA_EV_CALL), 0);
	ck_assert_int_lt(furca_session_next(FURCA_S_RESTORING, FURCA_EV_CALL), 0);
	ck_assert_int_lt(furca_session_next(FURCA_S_CLOSING, FURCA_EV_CLOSE), 0);
	for (int e = 0; e < FURCA_EV_MAX; e++)
		ck_assert_int_lt(furca_session_next(FURCA_S_DEAD, (enum furca_session_event)e), 0);
	ck_assert_int_lt(furca_session_next(FURCA_S_STATES, FURCA_EV_CALL), 0);
}
END_TEST

START_TEST(every_living_state_can_be_closed)
{
	for (int s = 0; s < FURCA_S_CLOSING; s++)
		ck_assert_int_eq(furca_session_next((enum furca_session_state)s, FURCA_EV_CLOSE), FURCA_S_CLOSING);
}
END_TEST

static void add(TCase *t)
{
	tcase_set_timeout(t, 4);
	tcase_add_test(t, a_life);
	tcase_add_test(t, what_cannot_happen);
	tcase_add_test(t, every_living_state_can_be_closed);
}

int main(void)
{
	return furca_test_main("session_state", add);
}
