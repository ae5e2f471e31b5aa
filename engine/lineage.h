/* The processes of one session, as list_sessions shows them with detail "full": the live one, its snapshots, its copies. */
#pragma once

#include <msgpack.h>

#include "engine/session.h"

/*
 * Packs an array of maps {role, pid, memory, serves, calls?, label?, call?}: role is live, snapshot, pristine (had from the zygote again), checkpoint,
 * parked copy or copy; `serves`: the next read would be made of it; `calls`: a state's, after so many calls; `call`: {state_mode, method, running_s}, what it
 * runs. Reads /proc for each.
 */
void furca_lineage_pack(msgpack_packer *pk, const struct furca_session *session);

/* Packs the entry `memory`: {private_bytes, shared_bytes} of a host's process; 0 where there is none (NULL). */
void furca_lineage_memory(msgpack_packer *pk, const struct furca_host *host);
