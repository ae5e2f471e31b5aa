/*
 * Whether a call came to a limit, and which: then its answer names it, how far it went, and what to do. The kernel's own counts are looked
 * at where it keeps any (memory and processes of a control group); else what the code or the shell reported when the kernel refused it.
 */
#pragma once

#include "engine/call.h"

/* When the call's code has ended by itself. Adds to its error; makes one where there is none. `host` has run it and lives. */
void furca_exceeded_explain(struct furca_call *call, struct furca_host *host);

/* The process was ended for want of memory, or of cpu time. */
void furca_exceeded_memory(struct furca_call *call, const struct furca_host *host);
/* Whether a process that was killed had used up its cpu time: the kernel does that a little after SIGXCPU was ignored. */
bool furca_exceeded_over_cpu(const struct furca_call *call, const struct furca_host *host);
void furca_exceeded_cpu(struct furca_call *call, const struct furca_host *host);
