#include "langs/python/parked.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "snapshot/clone.h"

#include "base/banned.h"

#define WATCH_MS 25	/* how often the watcher looks */
#define WAITING_LOOKS 4 /* looks in a row that find the main thread asleep and without progress */

static struct {
	uint64_t *ident; /* pthread_t of Python's threads */
	size_t n;
} noted;

/* System calls in which a thread waits for a clock, a descriptor or another process, and holds no
 * lock of libc. */
static const long sleeps[] = {
	SYS_clock_nanosleep,
	SYS_nanosleep,
	SYS_ppoll,
	SYS_pselect6,
	SYS_epoll_pwait,
	SYS_read,
	SYS_recvfrom,
	SYS_recvmsg,
	SYS_accept4,
	SYS_wait4,
	SYS_waitid,
	SYS_rt_sigtimedwait,
#ifdef SYS_poll
	SYS_poll,
	SYS_select,
	SYS_epoll_wait,
#endif
};

void furca_parked_note(void)
{
	PyObject *current = PySys_GetObject("_current_frames"), *key, *frame;
	PyObject *frames = current ? PyObject_CallObject(current, NULL) : NULL;
	Py_ssize_t at = 0;

	noted.n = 0;
	/* The main thread, which asks, runs no Python code now and is not among them. */
	if (frames && PyDict_Size(frames) > 0) {
		uint64_t *ident = realloc(noted.ident, (size_t)PyDict_Size(frames) * sizeof(*ident));

		if (ident) {
			noted.ident = ident;
			while (PyDict_Next(frames, &at, &key, &frame))
				ident[noted.n++] = PyLong_AsUnsignedLongLong(key);
		}
	}
	PyErr_Clear();
	Py_XDECREF(frames);
}

bool furca_parked_is(void *data, uint64_t pthread, long call)
{
	bool sleeps_outside = false;

	(void)data;
	for (size_t i = 0; i < FURCA_COUNT(sleeps); i++)
		sleeps_outside |= sleeps[i] == call;
	for (size_t i = 0; sleeps_outside && i < noted.n; i++)
		if (noted.ident[i] == pthread)
			return true;
	return false;
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
	if (!at ||
	    sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system_time) != 3)
		return false;
	*ret_ticks = user + system_time;
	return state == 'S';
}

static void *watch(void *data)
{
	struct timespec pause = {.tv_nsec = WATCH_MS * 1000000L};
	unsigned long last = 0, now = 0;
	int looks = 0;

	while (looks < WAITING_LOOKS) {
		(void)nanosleep(&pause, NULL);
		looks = main_sleeps(&now) && now == last ? looks + 1 : 0;
		last = now;
	}
	furca_clone_unpark();
	return data;
}

void furca_parked_watch(void)
{
	pthread_t watcher;

	if (pthread_create(&watcher, NULL, watch, NULL) == 0)
		(void)pthread_detach(watcher);
	else
		furca_clone_unpark();
}
