#include "engine/prefetch.h"

#include "bridge/wire/frame.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "engine/cgroup.h"
#include "engine/host_proc.h"

#include "base/banned.h"

#define COPIES 64					/* that are told the same */
#define MAX_BYTES (2 * FURCA_MAX_PAGE_RANGES * 16 + 64) /* two lists */

/* The lists alone: a copy's code can write to its channel what it likes, and what is passed on must not break the next copy's. */
void furca_prefetch_learn(struct furca_prefetch *prefetch, struct furca_view pages)
{
	struct furca_value written, mapped;
	msgpack_packer pk;

	if (!furca_map_get(pages, "written", &written) || written.kind != FURCA_BIN ||
	    !furca_map_get(pages, "mapped", &mapped) || mapped.kind != FURCA_BIN ||
	    furca_view_size(written.raw) + furca_view_size(mapped.raw) > MAX_BYTES)
		return;
	furca_prefetch_done(prefetch);
	furca_packer(&pk, &prefetch->pages);
	msgpack_pack_map(&pk, 2);
	furca_pack_text(&pk, "written");
	furca_pack_raw(&pk, written.raw);
	furca_pack_text(&pk, "mapped");
	furca_pack_raw(&pk, mapped.raw);
}

/* What is taken in vain must not bring a session to its limit of memory. */
bool furca_prefetch_allowed(const struct furca_host *host)
{
	return !host->memory_limit && !(host->cgroup && furca_cgroup_memory_limit(host->cgroup));
}

void furca_prefetch_tell(struct furca_prefetch *prefetch, struct furca_host *copy)
{
	FURCA_AUTO_BUF struct furca_buf frame = FURCA_BUF_INIT;
	msgpack_packer pk;

	if (prefetch->pages.len == 0 || prefetch->pages.failed || !furca_prefetch_allowed(copy))
		return;
	size_t at = furca_frame_begin(&frame, &pk, FURCA_HOST_WARM, 0, 1);
	furca_pack_text(&pk, "pages");
	furca_pack_raw(&pk, furca_buf_view(&prefetch->pages));
	(void)furca_frame_end(&frame, at, 0);
	(void)furca_host_send(copy, &frame, NULL, 0); /* one that has just died takes none */
	if (++prefetch->copies == COPIES)
		furca_prefetch_done(prefetch);
}

void furca_prefetch_done(struct furca_prefetch *prefetch)
{
	furca_buf_done(&prefetch->pages);
	prefetch->copies = 0;
}
