/*
 * A call that would wait for itself: code calls a capability, and the client that is to answer it asks for a stateful call of the very session
 * that waits. It is refused, instead of both waiting until a timeout. A client that says which capability call it serves (execute's `within`) is known to the
 * point, over any number of sessions in between. One that does not say is told from a client that merely queues calls by the capability call staying open for a
 * moment while the new call waits.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/coordinate.h"

struct furca_call;
struct furca_session;

/* Whether a call of that mode waits for the session's running one: what has attached itself is cloned between its calls only. */
bool furca_nested_waits(const struct furca_session *session, enum furca_mode mode);

/* Before a call that waits (furca_nested_waits) is put into the session's queue. 0, or -errno with *err where it is known that it would wait for itself. */
int furca_nested_watch(struct furca_call *call, struct furca_session *session, struct furca_err *err);
