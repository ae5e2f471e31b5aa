/*
 * The tool `execute_code` for a model: its JSON schema and description, which promise only what the machine can guarantee.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"

/*
 * Appends the description. `held`: the guarantees that a read-only call has here, bits of enum furca_barrier; `user_namespaces`
 * adds nothing to it. 0 or -ENOMEM.
 */
int furca_schema_description(struct furca_buf *out, unsigned held);

/* The schema of its arguments; json_decref. NULL where memory is out. */
json_t *furca_schema_arguments(void);
