/* What caps.c and objects.c share; nobody else includes it. */
#pragma once

#include "bridge/caps.h"
#include "bridge/handles.h"
#include "bridge/idmap.h"
#include "bridge/offers.h"

/* A client's call of an object of code, under way. */
struct furca_object_waits {
	uint64_t client, owner, msgid;
};

struct furca_caps {
	const struct furca_caps_events *events;
	void *user;
	struct furca_offers offers;
	struct furca_handles handles, objects; /* of clients, of code */
	struct furca_idmap object_calls;       /* the engine's number -> struct furca_object_waits */
	struct furca_idmap by_id, by_msgid;    /* the same calls of capabilities, by the engine's number and by ours */
	struct furca_idmap slow;	       /* client -> struct slow */
	uint32_t last_msgid;
	struct furca_caps_stats stats;
};

/* The ends of what objects.c keeps: of all, of one client's. */
void furca_caps_objects_done(struct furca_caps *caps);
void furca_caps_objects_client_gone(struct furca_caps *caps, uint64_t client);

/* A call reaches no client: the objects in it are nobody's. */
void furca_caps_let_go(struct furca_caps *caps, const struct furca_caps_request *from);
