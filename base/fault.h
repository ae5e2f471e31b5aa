/*
 * Named failure points, so that tests can end a process or fail a step at each of them. See fault.def.
 */
#pragma once

enum furca_fault {
#define FAULT(name, where) FURCA_FAULT_##name,
#include "base/fault.def"
#undef FAULT
	FURCA_FAULT_MAX
};

#ifdef FURCA_NO_FAULTS
static inline void furca_fault_init(void)
{
}
static inline int furca_fault(enum furca_fault point)
{
	(void)point;
	return 0;
}
#else
/* Reads FURCA_FAULT once; call at the start of a program, before user code may change the environment. */
void furca_fault_init(void);

/* 0 to go on, or -EIO where this passage is to fail. May not return. Async-signal-safe after furca_fault_init. */
int furca_fault(enum furca_fault point);
#endif

/* The lower-case name of a point, and its description. */
const char *furca_fault_name(enum furca_fault point);
const char *furca_fault_where(enum furca_fault point);
