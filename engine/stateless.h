/* Stateless calls: each in a clone of its zygote that is thrown away. */
#pragma once

#include "engine/call.h"

/* Runs the call and finishes it. */
void furca_stateless_begin(struct furca_call *call);
