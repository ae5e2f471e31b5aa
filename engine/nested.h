/*
 * A call that would wait for itself: code calls a capability, and the client that is to answer it asks for a stateful call of the very session
 * that waits. It is refused after a moment, instead of both waiting until a timeout. Told from a client that merely queues calls by
 * the capability call staying open while the new call waits.
 */
#pragma once

struct furca_call;
struct furca_session;

/* Before a stateful call is put into the session's queue. */
void furca_nested_watch(struct furca_call *call, struct furca_session *session);
