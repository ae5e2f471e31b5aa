/* Calls of objects that code has given to clients: they travel on the lanes on which that code waits, and their answers come back there. */
#include <errno.h>

#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "engine/engine_private.h"
#include "engine/host_proc.h"
#include "engine/lane_private.h"

#include "base/banned.h"

/* A slot of engine->object_calls. */
struct object_call {
	struct lane *lane;
};

struct search {
	uint64_t owner;
	struct lane *found;
};

/* Code that waits for a capability; one that waits for a stored function serves as well. */
static void find_waiting(void *data, void *slot, furca_op_id id)
{
	struct search *search = data;
	const struct pending *p = slot;

	if (p->lane && p->lane->lanes->owner == search->owner)
		search->found = p->lane;
}

/* The lane on which code of that owner waits, at best for the capability call `within`. NULL: none does. */
static struct lane *waiting_lane(struct furca_engine *engine, uint64_t owner, uint64_t within)
{
	struct search search = {.owner = owner};
	struct pending *p = within ? furca_ops_find(engine->capability_calls, within) : NULL;

	if (p && p->lane && p->lane->lanes->owner == owner)
		return p->lane;
	furca_ops_each(engine->capability_calls, find_waiting, &search);
	return search.found;
}

int furca_engine_object_call(struct furca_engine *engine, const struct furca_object_call *call, uint64_t *ret_id)
{
	struct lane *lane = waiting_lane(engine, call->owner, call->within);
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;
	struct object_call *slot;
	msgpack_packer pk;

	if (!lane)
		return -ENOENT;
	slot = furca_ops_add(engine->object_calls, ret_id);
	if (!slot)
		return -EBUSY;
	slot->lane = lane;
	lane->serving++;
	furca_packer(&pk, &body);
	msgpack_pack_map(&pk, 5);
	furca_pack_text(&pk, "object");
	furca_pack_bytes(&pk, call->object.at, furca_view_size(call->object));
	furca_pack_text(&pk, "name");
	furca_pack_bytes(&pk, call->name.at, furca_view_size(call->name));
	furca_pack_text(&pk, "args");
	furca_pack_raw(&pk, call->args);
	furca_pack_text(&pk, "kwargs");
	furca_pack_raw(&pk, call->kwargs);
	furca_pack_text(&pk, "read");
	furca_pack_bool(&pk, call->read);
	furca_lane_send(lane, FURCA_LANE_CALL, *ret_id, furca_buf_view(&body), NULL);
	return 0;
}

bool furca_lane_answered(struct lane *lane, const struct furca_frame_view *frame)
{
	struct object_call *slot = furca_ops_find(lane->lanes->engine->object_calls, frame->call);
	static const uint8_t nil[] = {0xc0};
	struct furca_engine *engine = lane->lanes->engine;
	struct furca_value value = {.raw = {nil, nil + 1}};
	struct furca_view none = {0};

	if (!slot || slot->lane != lane)
		return false;
	furca_ops_remove(engine->object_calls, frame->call);
	lane->serving--;
	if (frame->number == FURCA_LANE_RAISED) {
		engine->events.object_done(engine->user, frame->call, none, frame->body);
		return true;
	}
	(void)furca_map_get(frame->body, "value", &value);
	engine->events.object_done(engine->user, frame->call, value.raw, none);
	return true;
}

static void abandon(void *data, void *slot, furca_op_id id)
{
	struct lane *lane = data;
	const struct object_call *call = slot;
	struct furca_view none = {0};

	if (call->lane != lane)
		return;
	furca_ops_remove(lane->lanes->engine->object_calls, id);
	lane->lanes->engine->events.object_done(lane->lanes->engine->user, id, none, none);
}

void furca_lane_abandon(struct lane *lane)
{
	if (lane->serving > 0)
		furca_ops_each(lane->lanes->engine->object_calls, abandon, lane);
	lane->serving = 0;
}

void furca_engine_object_let_go(struct furca_engine *engine, uint64_t owner, struct furca_view object)
{
	struct lane *lane = waiting_lane(engine, owner, 0);
	FURCA_AUTO_BUF struct furca_buf body = FURCA_BUF_INIT;
	msgpack_packer pk;

	/* Where no code waits, the oldest lane, which is mostly the first thread's, brings it when it is used again. */
	for (struct furca_host *host = engine->hosts; host && !lane; host = host->next) {
		struct furca_lanes *lanes = host->lanes;

		for (struct lane *l = lanes && lanes->owner == owner ? lanes->first : NULL; l; l = l->next)
			lane = l;
	}
	if (!lane)
		return;
	furca_packer(&pk, &body);
	msgpack_pack_map(&pk, 1);
	furca_pack_text(&pk, "object");
	furca_pack_bytes(&pk, object.at, furca_view_size(object));
	furca_lane_send(lane, FURCA_LANE_LET_GO, 0, furca_buf_view(&body), NULL);
}
