#include "snapshot/filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "snapshot/arch.h"

#include "base/banned.h"

#define INSTRUCTIONS 2048
#define REACH 250     /* of a conditional jump, with room for the instructions that may still come between */
#define COUNTED 512   /* numbers that the kernel has or soon may have: what the tree is balanced by */
#define ERRORS_MAX 16 /* different ones */

/*
 * The instructions in reverse order, so that a jump's target is always there already. A place is an index here: place n is followed,
 * when the program runs, by place n - 1.
 */
struct program {
	struct sock_filter code[INSTRUCTIONS];
	unsigned n;
	struct {
		int error;
		unsigned at;
	} returns[ERRORS_MAX];
	unsigned n_returns;
	bool full;
};

/* A run of numbers up to the next one's first. */
struct run {
	uint32_t first;
	unsigned target; /* the place that its calls go to */
};

static unsigned emit(struct program *p, uint16_t code, uint32_t k, unsigned yes, unsigned no)
{
	if (p->n == INSTRUCTIONS) {
		p->full = true;
		return 0;
	}
	p->code[p->n] = (struct sock_filter){code, (uint8_t)yes, (uint8_t)no, k};
	return p->n++;
}

static unsigned go(struct program *p, unsigned to)
{
	return emit(p, BPF_JMP | BPF_JA, p->n - to - 1, 0, 0);
}

static unsigned within_reach(struct program *p, unsigned to)
{
	return p->n - to - 1 > REACH ? go(p, to) : to;
}

static unsigned branch(struct program *p, uint16_t test, uint32_t k, unsigned yes, unsigned no)
{
	yes = within_reach(p, yes);
	no = within_reach(p, no);
	return emit(p, (uint16_t)(BPF_JMP | BPF_K | test), k, p->n - yes - 1, p->n - no - 1);
}

/* Something that goes on at the next place. */
static unsigned before(struct program *p, uint16_t code, uint32_t k, unsigned next)
{
	if (next + 1 != p->n)
		(void)go(p, next);
	return emit(p, code, k, 0, 0);
}

static unsigned load(struct program *p, size_t offset, unsigned next)
{
	return before(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, next);
}

/* 0: the call is allowed. */
static unsigned answer(struct program *p, int error)
{
	uint32_t verdict = error ? SECCOMP_RET_ERRNO | (uint32_t)error : SECCOMP_RET_ALLOW;

	for (unsigned i = 0; i < p->n_returns; i++)
		if (p->returns[i].error == error)
			return p->returns[i].at;
	if (p->n_returns == ERRORS_MAX) {
		p->full = true;
		return 0;
	}
	p->returns[p->n_returns].error = error;
	p->returns[p->n_returns].at = emit(p, BPF_RET | BPF_K, verdict, 0, 0);
	return p->returns[p->n_returns++].at;
}

static unsigned test(struct program *p, const struct furca_filter_test *t, unsigned yes, unsigned no)
{
	size_t low = offsetof(struct seccomp_data, args) + t->argument * sizeof(uint64_t);
	unsigned at = 0;

	switch ((enum furca_filter_kind)t->kind) {
	case FURCA_FILTER_IS:
		at = branch(p, BPF_JEQ, t->value, yes, no);
		if (t->bits)
			at = before(p, BPF_ALU | BPF_AND | BPF_K, t->bits, at);
		break;
	case FURCA_FILTER_NOT:
		at = load(p, low + sizeof(uint32_t), branch(p, BPF_JEQ, 0, no, yes));
		at = branch(p, BPF_JEQ, t->value, at, yes);
		break;
	case FURCA_FILTER_ANY:
		at = branch(p, BPF_JSET, t->bits, yes, no);
		break;
	case FURCA_FILTER_OUTSIDE:
		at = before(p, BPF_ALU | BPF_LSH | BPF_X, 0, branch(p, BPF_JSET, t->bits, no, yes));
		at = before(p, BPF_MISC | BPF_TAX, 0, before(p, BPF_LD | BPF_IMM, 1, at));
		at = branch(p, BPF_JGE, 32, yes, at);
		break;
	}
	return load(p, low, at);
}

/* Whether the second rule can do with what the first one has loaded when it did not hold. */
static bool goes_on(const struct furca_filter_rule *first, const struct furca_filter_rule *second)
{
	const struct furca_filter_test *a = &first->tests[0], *b = &second->tests[0];

	return first->n == 1 && a->kind == FURCA_FILTER_IS && !a->bits && a->argument == b->argument;
}

/* The rules about one call, from the last to the first: where one does not hold, the next decides. */
static unsigned rules(struct program *p, const struct furca_filter_rule *rule, size_t n)
{
	unsigned next = answer(p, 0);

	for (size_t i = 0; i < n; i++)
		if (rule[i].n == 0)
			return answer(p, rule[i].error);
	for (size_t i = n; i-- > 0;) {
		unsigned at = answer(p, rule[i].error), no = next;

		if (i + 1 < n && goes_on(&rule[i], &rule[i + 1]))
			no = next - 1; /* behind its load */
		for (unsigned k = rule[i].n; k-- > 0;)
			at = test(p, &rule[i].tests[k], at, no);
		next = at;
	}
	return next;
}

static uint32_t counted(const struct run *runs, size_t from, size_t to)
{
	uint32_t first = runs[from].first, end = runs[to].first;

	return (end < COUNTED ? end : COUNTED) - (first < COUNTED ? first : COUNTED);
}

/* The search from run `from` to the one before `to`, whose first number is known. */
static unsigned search(struct program *p, const struct run *runs, size_t from, size_t to)
{
	size_t middle = from + 1;

	if (to - from == 1)
		return runs[from].target;
	while (middle + 1 < to && counted(runs, from, middle) < counted(runs, middle + 1, to))
		middle++;
	unsigned yes = search(p, runs, middle, to);
	unsigned no = search(p, runs, from, middle);
	return branch(p, BPF_JGE, runs[middle].first, yes, no);
}

static void add_run(struct run *runs, size_t *n, uint32_t first, unsigned target)
{
	if (*n && runs[*n - 1].first == first)
		--*n;
	if (*n && runs[*n - 1].target == target)
		return;
	runs[(*n)++] = (struct run){first, target};
}

static int by_number(const void *a, const void *b)
{
	return ((const struct furca_filter_rule *)a)->number - ((const struct furca_filter_rule *)b)->number;
}

static void assemble(struct program *p, const struct furca_filter *filter)
{
	struct run runs[2 * FURCA_FILTER_RULES + 8];
	const unsigned allowed = answer(p, 0), unknown = answer(p, ENOSYS);
	size_t n = 0;

	add_run(runs, &n, 0, allowed);
	for (size_t i = 0, same; i < filter->n; i += same) {
		const struct furca_filter_rule *rule = &filter->rules[i];

		for (same = 1; i + same < filter->n && rule[same].number == rule->number;)
			same++;
		add_run(runs, &n, (uint32_t)rule->number, rules(p, rule, same));
		add_run(runs, &n, (uint32_t)rule->number + 1, allowed);
	}
#ifdef FURCA_ARCH_OTHER_NUMBERS
	add_run(runs, &n, FURCA_ARCH_OTHER_NUMBERS, unknown);
	/* A debugger's word for no call at all. */
	add_run(runs, &n, UINT32_MAX, allowed);
#endif
	runs[n].first = UINT32_MAX;
	unsigned at = load(p, offsetof(struct seccomp_data, nr), search(p, runs, 0, n));
	at = branch(p, BPF_JEQ, FURCA_ARCH_AUDIT, at, unknown);
	(void)load(p, offsetof(struct seccomp_data, arch), at);
}

void furca_filter_add(struct furca_filter *filter, const struct furca_filter_rule *rule)
{
	if (rule->number < 0)
		return;
	if (filter->n < FURCA_FILTER_RULES)
		filter->rules[filter->n] = *rule;
	filter->n++;
}

int furca_filter_compile(struct furca_filter *filter, struct sock_fprog *ret)
{
	FURCA_AUTO_FREE struct program *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	if (filter->n > FURCA_FILTER_RULES)
		return -E2BIG;
	qsort(filter->rules, filter->n, sizeof(filter->rules[0]), by_number);
	assemble(p, filter);
	if (p->full)
		return -E2BIG;
	struct sock_filter *code = malloc(p->n * sizeof(*code));
	if (!code)
		return -ENOMEM;
	for (unsigned i = 0; i < p->n; i++)
		code[i] = p->code[p->n - 1 - i];
	*ret = (struct sock_fprog){(unsigned short)p->n, code};
	return 0;
}
