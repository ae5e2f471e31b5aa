#include "langs/python/parked.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "snapshot/clone.h"

#include "base/banned.h"

#define RESCUE_MS 500	/* most time to take a turn at the GIL, on a busy machine */
#define WATCH_MS 50	/* how often the watcher looks */
#define WAITING_LOOKS 4 /* looks in a row that find the main thread asleep and the process without progress */

static bool unwatched; /* threads are parked, and no watcher runs yet */
static struct {
	uint64_t *ident; /* pthread_t of Python's threads */
	size_t n;
	uint64_t self;
} noted;

void furca_parked_note(void)
{
	PyObject *sys = PyImport_ImportModule("sys");
	PyObject *frames = sys ? PyObject_CallMethod(sys, "_current_frames", NULL) : NULL, *key, *frame;
	Py_ssize_t at = 0;
	size_t n = 0;

	noted.n = 0;
	noted.self = (uint64_t)pthread_self();
	/* The main thread, which asks, runs no Python code now and is not among them. */
	if (frames && PyDict_Size(frames) > 0) {
		uint64_t *ident = realloc(noted.ident, (size_t)PyDict_Size(frames) * sizeof(*ident));

		if (ident) {
			noted.ident = ident;
			while (PyDict_Next(frames, &at, &key, &frame))
				ident[n++] = PyLong_AsUnsignedLongLong(key);
			noted.n = n;
		}
	}
	PyErr_Clear();
	Py_XDECREF(frames);
	Py_XDECREF(sys);
}

bool furca_parked_is(void *data, pid_t tid, uint64_t pthread)
{
	(void)data;
	(void)tid;
	if (pthread == noted.self)
		return false;
	for (size_t i = 0; i < noted.n; i++)
		if (noted.ident[i] == pthread)
			return true;
	return false;
}

struct settle {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool settled;
};

static struct settle settle = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static void *take_turn(void *data)
{
	PyGILState_STATE state = PyGILState_Ensure();

	PyGILState_Release(state);
	(void)pthread_mutex_lock(&settle.lock);
	settle.settled = true;
	(void)pthread_cond_signal(&settle.done);
	(void)pthread_mutex_unlock(&settle.lock);
	return data;
}

/* Frees the parked threads if nobody could take a turn in time: one of them holds what the GIL is made of. */
static void *rescue(void *data)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += RESCUE_MS * 1000000L;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	(void)pthread_mutex_lock(&settle.lock);
	while (!settle.settled)
		if (pthread_cond_timedwait(&settle.done, &settle.lock, &until))
			break;
	if (!settle.settled)
		furca_clone_unpark();
	(void)pthread_mutex_unlock(&settle.lock);
	return data;
}

/* State and CPU time of the main thread, from /proc; true where it sleeps. */
static bool main_sleeps(unsigned long *ret_ticks)
{
	char path[64], text[512], *at;
	unsigned long user, system_time;
	char state;
	size_t n;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	file = fopen(path, "re");
	if (!file)
		return false;
	n = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[n] = '\0';
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system_time) != 3)
		return false;
	*ret_ticks = user + system_time;
	return state == 'S';
}

static void *watch(void *data)
{
	struct timespec pause = {.tv_nsec = WATCH_MS * 1000000L};
	unsigned long last = 0, now = 0;
	int asleep = 0;

	while (asleep < WAITING_LOOKS) {
		(void)nanosleep(&pause, NULL);
		asleep = main_sleeps(&now) && now == last ? asleep + 1 : 0;
		last = now;
	}
	furca_clone_unpark();
	return data;
}

static bool start(void *(*run)(void *), pthread_t *ret)
{
	return pthread_create(ret, NULL, run, NULL) == 0;
}

void furca_parked_settle(void)
{
	pthread_t turn, helper;
	PyThreadState *state;
	bool rescued;

	/*
	 * A thread that was waiting for the GIL may have asked for it to be dropped; the thread that drops it then waits until another
	 * has had it. The one who asked is parked, so a thread of ours takes the turn.
	 */
	if (!start(take_turn, &turn)) {
		furca_clone_unpark();
		return;
	}
	rescued = start(rescue, &helper);
	if (!rescued)
		furca_clone_unpark();
	state = PyEval_SaveThread();
	(void)pthread_join(turn, NULL);
	if (rescued)
		(void)pthread_join(helper, NULL);
	PyEval_RestoreThread(state);
	unwatched = true;
}

void furca_parked_watch(void)
{
	pthread_t watcher;

	if (!unwatched)
		return;
	unwatched = false;
	if (start(watch, &watcher))
		(void)pthread_detach(watcher);
	else
		furca_clone_unpark();
}
