/* What a host says when its code has ended: DONE (bridge/wire/host.h), read in one walk, since each call has one and most of what may be in it is not. */
#pragma once

#include "bridge/wire/value.h"

/* Views of the map's bytes; empty where a field is missing or of another kind. */
struct furca_done {
	struct furca_view how, error, suggestion, unsent, hindrance, remedy; /* text */
	struct furca_view exit_code, result, result_text, display, changes;  /* packed */
	uint64_t run_us, result_text_cut;
	bool changed, redirected; /* also where it does not say */
	bool pages;
};

void furca_done_read(struct furca_view body, struct furca_done *ret);

/* exit_code as a number; `otherwise` where there is none. */
int64_t furca_done_status(const struct furca_done *done, int64_t otherwise);
