/* A process that runs on its own and lends itself to an engine: it serves when it pumps, and nothing here ends it. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"
#include "langs/host.h"
#include "langs/host_private.h"

#include "base/banned.h"

#define ATTACH_MS 10000 /* for the engine to answer a process that attaches itself */

int furca_host_pump(struct furca_host *host, int wake, int timeout_ms)
{
	struct pollfd wanted[2] = {{.fd = host->control.n, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
	int r;

	if (!host->attached || host->gone)
		return -EPIPE;
	if (!furca_host_is_self(host))
		return -ESRCH;
	if (host->lang->idle_begin)
		host->lang->idle_begin(host->data);
	r = poll(wanted, 2, timeout_ms) < 0 ? -errno : 0;
	if (host->lang->idle_end)
		host->lang->idle_end(host->data);
	if (r < 0 || !wanted[0].revents)
		return r;
	if (furca_host_serve_one(host) == FURCA_HOST_CLOSED)
		host->gone = true;
	if (!host->attached) { /* a clone */
		if (!host->gone)
			furca_host_serve_on(host);
		_exit(0);
	}
	if (host->gone)
		furca_host_detach(host);
	return host->gone ? -EPIPE : 1;
}

void furca_host_detach(struct furca_host *host)
{
	host->gone = true;
	furca_fd_done(&host->control);
	furca_fd_done(&host->capability);
}

/* The engine's first message, with the capability socket. */
static int await_attach(struct furca_host *host, struct furca_err *err)
{
	struct pollfd poll_control = {.fd = host->control.n, .events = POLLIN};
	struct furca_fd fds[FURCA_FDS_MAX];
	struct furca_frame_view frame;
	size_t n_fds;
	int r;

	if (poll(&poll_control, 1, ATTACH_MS) != 1)
		return furca_fail(err, FURCA_E_TIMEOUT, 0, "the engine does not answer on the channel it was given");
	r = furca_frame_read(host->control.n, &host->in, 0, FURCA_MAX_HOST_FRAME, &frame, fds, &n_fds, err);
	if (r == 1 && frame.number == FURCA_HOST_ATTACH && n_fds == 1)
		host->capability = furca_fd_take(&fds[0]);
	else if (r >= 0)
		r = furca_fail(err, FURCA_E_PROTOCOL, 0, "the engine has not taken the channel it was given");
	furca_fds_done(fds, n_fds);
	return r < 0 ? r : 0;
}

int furca_host_attach(struct furca_host *host, const struct furca_host_lang *lang, void *data, struct furca_fd control,
		      struct furca_err *err)
{
	unsigned generation = host->generation + 1; /* lanes of an earlier attachment are not ours */
	int r;

	*host = (struct furca_host){.lang = lang,
				    .data = data,
				    .control = control,
				    .capability = FURCA_FD_NONE,
				    .generation = generation,
				    .attached = true};
	furca_host_be_self(host);
	r = await_attach(host, err);
	if (r == 0 && (furca_host_hide(&host->control) < 0 || furca_host_hide(&host->capability) < 0))
		r = furca_fail(err, FURCA_E_SYSTEM, EMFILE, "cannot move the engine's channels to high numbers");
	if (r == 0)
		r = furca_clone_init(err);
	if (r == 0)
		furca_host_ready(host);
	if (r < 0 || host->gone)
		furca_host_detach(host);
	return r < 0 ? r : host->gone ? furca_fail(err, FURCA_E_GONE, 0, "the engine has let the process go") : 0;
}
