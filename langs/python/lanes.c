#include "langs/python/lanes.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/ring.h"
#include "langs/python/lanes_frame.h"
#include "snapshot/clone.h"

#include "base/banned.h"

/*
 * How often a waiting call looks for signals that came between its last look and its wait. Signals
 * that come during the wait end it at once.
 */
#define LOOK_MS 200

struct lane {
	struct furca_fd fd;
	unsigned generation;
	pid_t pid;
	uint64_t last_call;
	bool busy;	/* a call is under way: one that a signal handler makes meanwhile gets a lane for
		      itself */
	bool temporary; /* not the thread's */
	struct furca_buf in;
	struct furca_ring ring;		    /* the lane's shared memory, where it has any */
	bool socket_due;		    /* with it: there may be more on the socket */
	struct furca_fd fds[FURCA_FDS_MAX]; /* that came, of frames not read yet */
	size_t n_fds;
};

static struct {
	const struct furca_host *host;
	pthread_key_t key;
	bool shared;
} lanes;

/* Whether the lane belongs to this process image: in a clone and in a forked child its shared memory is not there. */
static bool is_ours(const struct lane *lane)
{
	return lane->generation == lanes.host->generation && lane->pid == getpid();
}

static void lane_free(void *data)
{
	struct lane *lane = data;

	if (!lane)
		return;
	if (is_ours(lane))
		furca_ring_done(&lane->ring);
	furca_fd_done(&lane->fd);
	furca_fds_done(lane->fds, lane->n_fds);
	furca_buf_done(&lane->in);
	free(lane);
}

void furca_lanes_init(const struct furca_host *host, const struct furca_lanes_hooks *hooks)
{
	lanes.host = host;
	furca_lane_hooks = *hooks;
	(void)pthread_key_create(&lanes.key, lane_free);
	const char *word = getenv(FURCA_LANES_VARIABLE);
	lanes.shared = word && strcmp(word, "shared") == 0;
}

/* `memory`: of a lane with a ring; -1: none. */
static int lane_open(char kind, int memory, struct furca_fd *ret, struct furca_err *err)
{
	int r = furca_host_open_lane(lanes.host, kind, memory, ret, err);

	return r < 0 ? r : furca_fd_nonblock(ret->n, 1);
}

int furca_lane_open(struct furca_fd *ret, struct furca_err *err)
{
	return lane_open(FURCA_LANE_OPEN_FRAMES, -1, ret, err);
}

/* With shared memory where that is wanted and can be had. */
static int lane_connect(struct lane *lane, struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd memory = FURCA_FD_NONE;

	if (!lanes.shared || furca_ring_new(&lane->ring, &memory) < 0)
		return furca_lane_open(&lane->fd, err);
	/* A thread that waits here may be cloned, and then waits in the clone too. */
	if (!furca_clone_blank(lane->ring.memory, FURCA_RING_MEMORY)) {
		furca_ring_done(&lane->ring);
		return furca_lane_open(&lane->fd, err);
	}
	return lane_open(FURCA_LANE_OPEN_SHARED, memory.n, &lane->fd, err);
}

static struct lane *lane_new(void)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	struct furca_err err = FURCA_ERR_INIT;

	if (!lane) {
		(void)PyErr_NoMemory();
		return NULL;
	}
	*lane = (struct lane){.fd = FURCA_FD_NONE,
			      .generation = lanes.host->generation,
			      .pid = getpid(),
			      .in = {.max = FURCA_MAX_CAPABILITY * 2UL}};
	if (lane_connect(lane, &err) == 0)
		return lane;
	(void)furca_lane_raise(&err);
	lane_free(lane);
	return NULL;
}

/*
 * This thread's lane, opened if it has none or only that of another process image; marked busy
 * until lane_put. NULL with an exception.
 */
static struct lane *lane_get(void)
{
	struct lane *lane = pthread_getspecific(lanes.key);
	bool ours = lane && is_ours(lane);

	if (ours && lane->busy) {
		lane = lane_new();
		if (lane)
			lane->temporary = true;
		return lane;
	}
	if (!ours || lane->fd.n < 0) {
		lane_free(lane);
		lane = lane_new();
		(void)pthread_setspecific(lanes.key, lane);
	}
	if (lane)
		lane->busy = true;
	return lane;
}

static void lane_put(struct lane *lane)
{
	lane->busy = false;
	if (lane->temporary)
		lane_free(lane);
}

/* A lane with a call that nobody waits for is closed: the engine drops the call. */
static void lane_drop(struct lane *lane)
{
	if (is_ours(lane))
		furca_ring_done(&lane->ring);
	lane->ring = (struct furca_ring){0};
	furca_fd_done(&lane->fd);
	furca_fds_done(lane->fds, lane->n_fds);
	lane->n_fds = 0;
	furca_buf_done(&lane->in);
}

/* Takes a frame's descriptors out of those that came; the caller closes them. False: they did not. */
static bool frame_fds(struct lane *lane, const struct furca_frame_view *frame, struct furca_fd *ret)
{
	if (frame->n_fds > lane->n_fds)
		return false;
	memcpy(ret, lane->fds, frame->n_fds * sizeof(*ret));
	lane->n_fds -= frame->n_fds;
	memmove(lane->fds, lane->fds + frame->n_fds, lane->n_fds * sizeof(*ret));
	return true;
}

struct exchange {
	struct lane *lane;
	const uint8_t *data; /* still to be sent */
	size_t n;
	int memory; /* goes with its first byte; -1: none */
	int error;  /* errno that broke the lane, 0 none */
	bool posts; /* nothing is answered */
	bool begun; /* on the socket */
};

/* Receives what is there. Bytes, 0 at the end, or -errno. */
static ssize_t lane_recv(struct lane *lane)
{
	struct furca_fd fds[FURCA_FDS_MAX];
	size_t n_fds = FURCA_COUNT(fds);
	ssize_t n;

	if (furca_buf_reserve(&lane->in, 65536) < 0)
		return -ENOMEM;
	n = furca_fd_recv(lane->fd.n, lane->in.data + lane->in.len, lane->in.cap - lane->in.len, fds, &n_fds);
	if (lane->n_fds + n_fds > FURCA_COUNT(lane->fds)) {
		furca_fds_done(fds, n_fds);
		return -EPROTO;
	}
	memcpy(lane->fds + lane->n_fds, fds, n_fds * sizeof(*fds));
	lane->n_fds += n_fds;
	if (n > 0)
		lane->in.len += (size_t)n;
	return n;
}

static void send_some(struct exchange *x)
{
	ssize_t n = furca_fd_send(x->lane->fd.n, x->data, x->n, &x->memory, x->memory >= 0);

	if (n > 0) {
		x->begun = true;
		x->data += n;
		x->n -= (size_t)n;
		x->memory = -1;
	} else if (n != -EAGAIN) {
		x->error = (int)-n;
	}
}

/* Sends all of it by the ring, if it fits. */
static bool send_by_ring(struct exchange *x)
{
	static const uint8_t bell[] = {4, 0, 0, 0, 0, FURCA_FRAME_VERSION, 0, 0, 0x93, FURCA_LANE_BELL, 0, 0x80};
	struct furca_ring *ring = &x->lane->ring;

	if (x->begun || x->memory >= 0 || furca_ring_write(ring, x->data, x->n) != 1)
		return false;
	x->n = 0;
	/* A socket that takes no more wakes the engine by what is in it. */
	if (furca_ring_ring(ring, false) == FURCA_RING_SOCKET)
		(void)furca_fd_send(x->lane->fd.n, bell, sizeof(bell), NULL, 0);
	return true;
}

/* Copies what is in the ring behind what was received. */
static void read_ring(struct exchange *x)
{
	struct furca_buf *in = &x->lane->in;
	ssize_t n = furca_buf_reserve(in, FURCA_RING_BYTES) < 0 ? -ENOMEM
								: furca_ring_read(&x->lane->ring, in->data + in->len);

	if (n < 0)
		x->error = (int)-n;
	else
		in->len += (size_t)n;
}

/* Takes what the socket has. */
static void read_socket(struct exchange *x)
{
	ssize_t n = lane_recv(x->lane);

	x->lane->socket_due = n > 0;
	if (n <= 0 && n != -EAGAIN)
		x->error = n == 0 ? EPIPE : (int)-n;
}

/* As exchange_step, where half a frame of the socket is neither sent nor received. */
static void ring_step(struct exchange *x)
{
	struct furca_ring *ring = &x->lane->ring;
	bool by_socket;

	if (!furca_ring_heard(ring, &by_socket) && !x->lane->socket_due) {
		if (furca_ring_sleep(ring, FURCA_RING_FUTEX)) {
			furca_ring_wait(ring, LOOK_MS);
			/* A thread that waited may find itself in a clone. */
			if (!is_ours(x->lane)) {
				x->error = EPIPE;
				return;
			}
			furca_ring_awake(ring);
		}
		/* Where the wait was over before anything came, whether the engine is there shows on the socket. */
		if (!furca_ring_heard(ring, &by_socket))
			by_socket = true;
	}
	read_ring(x);
	if (!x->error && (by_socket || x->lane->socket_due))
		read_socket(x);
}

/* Sends what goes and reads what is there, waiting at most once. Without the GIL. */
static void exchange_step(struct exchange *x)
{
	struct pollfd p = {.fd = x->lane->fd.n, .events = POLLIN};
	bool ring = x->lane->ring.memory, sends = x->n > 0;

	/* A child that was forked during the call has no ring. */
	if (ring && !is_ours(x->lane))
		x->error = EPIPE;
	else if (sends && !(ring && send_by_ring(x)))
		send_some(x); /* mostly all of it, at once */
	/* What has come already is looked at first. */
	if (x->error || (sends && !x->n && (x->posts || x->lane->in.len > 0)))
		return;
	/* Whichever way it went, the answer may come by either. */
	if (ring && !x->n && x->lane->in.len == 0) {
		ring_step(x);
		return;
	}
	x->lane->socket_due = true;
	if (x->n)
		p.events |= POLLOUT;
	if (poll(&p, 1, LOOK_MS) > 0 && (p.revents & (POLLIN | POLLHUP | POLLERR)))
		read_socket(x);
}

static bool post(struct exchange *x);

/* Runs the object that a CALL names and sends what comes of it. 0, or -1 with an exception and the lane dropped. */
static int serve_call(struct exchange *x, PyObject *body, uint64_t call)
{
	PyObject *answer =
		body ? PyObject_CallFunction(furca_lane_hooks.serve, "KO", (unsigned long long)call, body) : NULL;
	struct exchange out = {.lane = x->lane, .memory = -1, .posts = true};
	int r = -1;

	Py_XDECREF(body);
	out.data = answer ? (const uint8_t *)PyBytes_AsString(answer) : NULL;
	if (out.data) {
		out.n = (size_t)PyBytes_Size(answer);
		r = post(&out) ? 0 : -1;
	} else {
		lane_drop(x->lane);
	}
	Py_XDECREF(answer);
	return r;
}

/* Deals with a frame that is no answer. 1 where it was one, 0 where it is not, or -1 with an exception and the lane dropped. */
static int own_frame(struct exchange *x, const struct furca_frame_view *frame)
{
	bool calls = frame->number == FURCA_LANE_CALL;
	uint64_t call = frame->call;

	if (!calls && frame->number != FURCA_LANE_LET_GO)
		return 0;
	PyObject *body = calls ? furca_frame_body(frame) : NULL;
	if (!calls)
		furca_frame_let_go(frame);
	furca_buf_consume(&x->lane->in, frame->size);
	return !calls || serve_call(x, body, call) == 0 ? 1 : -1;
}

/* Waits for the next whole frame that answers; 0, or -1 with an exception and the lane dropped. The frame stays
 * at the front of lane->in. */
static int exchange_frame(struct exchange *x, struct furca_frame_view *ret)
{
	for (;;) {
		size_t need;
		struct furca_err err = FURCA_ERR_INIT;
		int r = furca_frame_parse(x->lane->in.data, x->lane->in.len, FURCA_MAX_HOST_FRAME, ret, &need, &err);

		if (r == 1 && !x->n) {
			int own = own_frame(x, ret);

			if (own == 0)
				return 0;
			if (own < 0)
				return -1;
			continue;
		}
		if (r < 0 || x->error) {
			lane_drop(x->lane);
			PyErr_SetString(PyExc_ConnectionError,
					r < 0 ? err.text : "the engine closed the lane of this call");
			return -1;
		}
		Py_BEGIN_ALLOW_THREADS
		exchange_step(x);
		Py_END_ALLOW_THREADS
		if (PyErr_CheckSignals() < 0) {
			lane_drop(x->lane);
			return -1;
		}
	}
}

/* Collects the answers to calls first … first + n - 1 into `values`. The first failure by place is
 * raised. */
static PyObject *collect(struct exchange *x, uint64_t first, Py_ssize_t n, PyObject *values)
{
	Py_ssize_t left = n;
	PyObject *failure = NULL;
	uint64_t failure_call = UINT64_MAX;

	while (left > 0) {
		struct furca_frame_view frame;
		struct furca_fd fds[FURCA_FDS_MAX];
		PyObject *value;
		int ok;

		if (exchange_frame(x, &frame) < 0)
			goto fail;
		if (!frame_fds(x->lane, &frame, fds)) {
			lane_drop(x->lane);
			PyErr_SetString(PyExc_ConnectionError, "the engine sent less than it said");
			goto fail;
		}
		value = NULL;
		if (frame.call >= first && frame.call - first < (uint64_t)n) {
			value = furca_frame_value(&frame, fds, &ok);
			left--;
			if (!value) {
				furca_fds_done(fds, frame.n_fds);
				furca_buf_consume(&x->lane->in, frame.size);
				goto fail;
			}
			if (!ok && frame.call < failure_call) {
				Py_XDECREF(failure);
				failure = value;
				failure_call = frame.call;
				Py_INCREF(value);
			}
			if (PyList_SetItem(values, (Py_ssize_t)(frame.call - first), value) < 0)
				goto fail;
		}
		furca_fds_done(fds, frame.n_fds);
		furca_buf_consume(&x->lane->in, frame.size);
	}
	if (x->lane->in.cap > 1U << 20)
		furca_buf_done(&x->lane->in);
	if (failure) {
		PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
		goto fail;
	}
	return values;
fail:
	if (left > 0 && x->lane->fd.n >= 0)
		lane_drop(x->lane);
	Py_XDECREF(failure);
	Py_DECREF(values);
	return NULL;
}

/* Sends what nobody answers. True, or false with an exception and the lane dropped. */
static bool post(struct exchange *x)
{
	while (x->n && !x->error) {
		Py_BEGIN_ALLOW_THREADS
		exchange_step(x);
		Py_END_ALLOW_THREADS
		if (PyErr_CheckSignals() < 0)
			break;
	}
	if (!x->n)
		return true;
	lane_drop(x->lane);
	if (!PyErr_Occurred())
		PyErr_SetString(PyExc_ConnectionError, "the engine closed the lane of this call");
	return false;
}

PyObject *furca_lanes_post(PyObject *self, PyObject *args)
{
	FURCA_AUTO(furca_outgoing_done) struct furca_outgoing out = FURCA_OUTGOING(65536);
	struct lane *lane;
	struct furca_frame_call call = {0};
	bool good = false;

	if (!PyArg_ParseTuple(args, "iO!", &call.number, &PyDict_Type, &call.extra))
		return NULL;
	call.args = Py_None;
	lane = lane_get();
	if (!lane)
		return NULL;
	if (furca_frame_make(&out, ++lane->last_call, &call) == 0) {
		struct exchange x = {
			.lane = lane, .data = out.bytes.data, .n = out.bytes.len, .memory = -1, .posts = true};

		good = post(&x);
	}
	lane_put(lane);
	if (!good)
		return NULL;
	Py_RETURN_NONE;
}

PyObject *furca_lanes_look(PyObject *self, PyObject *args)
{
	struct lane *lane = pthread_getspecific(lanes.key);
	struct furca_frame_view frame;
	size_t need;

	if (!lane || lane->busy || lane->fd.n < 0 || lane->generation != lanes.host->generation ||
	    lane->pid != getpid())
		Py_RETURN_NONE;
	if (lane_recv(lane) == 0)
		lane_drop(lane);
	while (furca_frame_parse(lane->in.data, lane->in.len, FURCA_MAX_HOST_FRAME, &frame, &need, NULL) == 1 &&
	       frame.number == FURCA_LANE_LET_GO) {
		furca_frame_let_go(&frame);
		furca_buf_consume(&lane->in, frame.size);
	}
	Py_RETURN_NONE;
}

PyObject *furca_lanes_ask(const struct furca_frame_call *call)
{
	PyObject *values = NULL, *value = NULL;
	FURCA_AUTO(furca_outgoing_done) struct furca_outgoing out = FURCA_OUTGOING(FURCA_MAX_CAPABILITY + 4096UL);
	struct lane *lane = lane_get();

	if (!lane)
		return NULL;
	if (furca_frame_make(&out, ++lane->last_call, call) == 0)
		values = PyList_New(1);
	if (values) {
		struct exchange x = {.lane = lane, .data = out.bytes.data, .n = out.bytes.len, .memory = out.memory.n};

		values = collect(&x, lane->last_call, 1, values);
	}
	lane_put(lane);
	if (values) {
		value = PyList_GetItem(values, 0);
		Py_XINCREF(value);
		Py_DECREF(values);
	}
	return value;
}

PyObject *furca_lanes_call(PyObject *self, PyObject *args)
{
	struct furca_frame_call call = {0};

	if (!PyArg_ParseTuple(args, "iOOOO|O", &call.number, &call.name, &call.args, &call.kwargs, &call.extra,
			      &call.reader))
		return NULL;
	return furca_lanes_ask(&call);
}

PyObject *furca_lanes_call_many(PyObject *self, PyObject *args)
{
	FURCA_AUTO_BUF struct furca_buf out = {.max = FURCA_MAX_CAPABILITY * 2UL};
	PyObject *name, *calls, *extra, *values = NULL;
	struct lane *lane;
	Py_ssize_t n;
	uint64_t first;
	size_t offset;
	int number;

	if (!PyArg_ParseTuple(args, "iOO!O", &number, &name, &PyList_Type, &calls, &extra))
		return NULL;
	lane = lane_get();
	if (!lane)
		return NULL;
	n = PyList_Size(calls);
	first = lane->last_call + 1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *call_args, *kwargs;

		if (!PyArg_ParseTuple(PyList_GetItem(calls, i), "OO", &call_args, &kwargs) ||
		    furca_frame_pack(&out, &offset, number, ++lane->last_call, name, call_args, kwargs,
				     extra == Py_None ? NULL : extra, NULL) < 0 ||
		    furca_frame_close(&out, offset, 0) < 0)
			goto put;
	}
	values = PyList_New(n);
	if (values) {
		struct exchange x = {.lane = lane, .data = out.data, .n = out.len, .memory = -1};

		values = collect(&x, first, n, values);
	}
put:
	lane_put(lane);
	return values;
}
