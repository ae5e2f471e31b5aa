/*
 * Scope-bound cleanup. Declare with FURCA_AUTO(type_done) and initialise at once; the cleanup keeps errno.
 * A destructor used here takes a pointer to the variable and accepts an empty one.
 */
#pragma once

#include <errno.h>
#include <stdlib.h>

#define FURCA_AUTO(destructor) __attribute__((cleanup(destructor)))

static inline void furca_auto_free(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

/* A malloc'ed pointer that is freed at the end of the scope. */
#define FURCA_AUTO_FREE FURCA_AUTO(furca_auto_free)

/* Moves a pointer out of a scope-bound variable, leaving NULL. */
#define FURCA_TAKE(p)                                                                                                  \
	({                                                                                                             \
		__typeof__(p) furca_taken = (p);                                                                       \
		(p) = NULL;                                                                                            \
		furca_taken;                                                                                           \
	})

#define FURCA_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FURCA_MIN(a, b) ((a) < (b) ? (a) : (b))
#define FURCA_MAX(a, b) ((a) > (b) ? (a) : (b))

/* The structure that holds `member` at `ptr`. */
#define furca_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
