/*
 * Compiles rules about system calls to the program that seccomp(2) loads. The kernel compiles that program anew for each process, and
 * runs it once for each number when it is loaded, to learn which calls need no look at it: so it is made short and flat, a search
 * tree over runs of numbers that are treated alike. Not raw: it allocates.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#define FURCA_FILTER_RULES 256
#define FURCA_FILTER_TESTS 2 /* in one rule */

/* About an argument's lower half, which is all that the kernel reads of an int; NOT looks at both halves. */
enum furca_filter_kind {
	FURCA_FILTER_IS,      /* these bits of it are the value */
	FURCA_FILTER_NOT,     /* it is not the value */
	FURCA_FILTER_ANY,     /* it has one of these bits */
	FURCA_FILTER_OUTSIDE, /* it is none of the numbers below 32 whose bits these are */
};

struct furca_filter_test {
	uint8_t argument, kind; /* 0 to 5; enum furca_filter_kind */
	uint32_t bits, value;	/* IS with bits 0: all of them */
};

/* Refuses the call with that errno if all tests hold; one that no rule refuses is allowed. */
struct furca_filter_rule {
	int number, error;
	unsigned n;
	struct furca_filter_test tests[FURCA_FILTER_TESTS];
};

/* All zero before the first rule. */
struct furca_filter {
	struct furca_filter_rule rules[FURCA_FILTER_RULES];
	size_t n; /* above the maximum: a rule had no room, and nothing is compiled */
};

/* Adds a rule. A number below 0, a call that is not known here, is none: it cannot be made either. */
void furca_filter_add(struct furca_filter *filter, const struct furca_filter_rule *rule);

/*
 * The program; *ret owns its memory (free). Calls in another architecture's numbers answer ENOSYS. 0 or -errno: -E2BIG, too many rules
 * or instructions.
 */
int furca_filter_compile(struct furca_filter *filter, struct sock_fprog *ret);
