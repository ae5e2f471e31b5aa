/* The compiler of system call filters: its programs, run here, answer as the rules say. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "snapshot/arch.h"
#include "snapshot/filter.h"
#include "snapshot/privileges.h"
#include "tests/unit/harness.h"
#include "tests/unit/random.h"

#include "base/banned.h"

#define HALF(value)                                                                                                    \
	((uint64_t)(value) | (uint64_t)7 << 32) /* an int, with something else in the register's upper half */

/* Runs a program as the kernel does: the errno it answers, 0: allowed. */
static int verdict(const struct sock_fprog *program, const struct seccomp_data *data)
{
	uint32_t a = 0, x = 0;

	for (size_t i = 0;; i++) {
		ck_assert_uint_lt(i, program->len);
		const struct sock_filter *f = &program->filter[i];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			ck_assert_uint_le(f->k, sizeof(*data) - 4);
			memcpy(&a, (const char *)data + f->k, 4);
			break;
		case BPF_LD | BPF_IMM:
			a = f->k;
			break;
		case BPF_MISC | BPF_TAX:
			x = a;
			break;
		case BPF_ALU | BPF_LSH | BPF_X:
			ck_assert_uint_lt(x, 32);
			a <<= x;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_JMP | BPF_JA:
			i += f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			i += a == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			i += a >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			i += a & f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			if (f->k == SECCOMP_RET_ALLOW)
				return 0;
			ck_assert_uint_eq(f->k & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
			return (int)(f->k & SECCOMP_RET_DATA);
		default:
			ck_abort_msg("instruction %zu: %#x", i, f->code);
		}
	}
}

static int of(unsigned filter, long number, uint64_t a, uint64_t b, uint64_t c)
{
	struct seccomp_data data = {.nr = (int)number, .arch = FURCA_ARCH_AUDIT, .args = {a, b, c}};

	return verdict(furca_privileges_program(filter), &data);
}

/* ---- any rules --------------------------------------------------------------------------------------------------- */

static bool holds(const struct furca_filter_test *t, uint64_t value)
{
	uint32_t low = (uint32_t)value;

	switch ((enum furca_filter_kind)t->kind) {
	case FURCA_FILTER_IS:
		return (t->bits ? low & t->bits : low) == t->value;
	case FURCA_FILTER_NOT:
		return value != t->value;
	case FURCA_FILTER_ANY:
		return (low & t->bits) != 0;
	case FURCA_FILTER_OUTSIDE:
		return low >= 32 || !(t->bits >> low & 1);
	}
	return false;
}

/* What the rules say of a call; two that disagree about the errno leave either. */
static bool right(const struct furca_filter *filter, const struct seccomp_data *data, int answer)
{
	bool refused = false;

	for (size_t i = 0; i < filter->n; i++) {
		const struct furca_filter_rule *rule = &filter->rules[i];
		bool all = rule->number == data->nr;

		for (unsigned k = 0; all && k < rule->n; k++)
			all = holds(&rule->tests[k], data->args[rule->tests[k].argument]);
		refused |= all;
		if (all && rule->error == answer)
			return true;
	}
	return !refused && answer == 0;
}

static uint32_t small(uint64_t *state)
{
	uint32_t r = (uint32_t)furca_test_random(state);

	return r & 1 ? r >> 1 & 3 : r >> 1 & 63;
}

static struct furca_filter_rule random_rule(uint64_t *state, int numbers)
{
	struct furca_filter_rule rule = {.number = (int)(furca_test_random(state) % (unsigned)numbers),
					 .error = furca_test_random(state) % 2 ? EPERM : EAFNOSUPPORT,
					 .n = (unsigned)(furca_test_random(state) % (FURCA_FILTER_TESTS + 1))};

	for (unsigned k = 0; k < rule.n; k++) {
		rule.tests[k].argument = (uint8_t)(furca_test_random(state) % 3);
		rule.tests[k].kind = (uint8_t)(furca_test_random(state) % 4);
		rule.tests[k].value = small(state);
		rule.tests[k].bits = rule.tests[k].kind == FURCA_FILTER_IS ? small(state) & 3 : small(state);
	}
	return rule;
}

START_TEST(programs_do_what_their_rules_say)
{
	static struct furca_filter filter;
	uint64_t state = furca_test_seed();

	for (int round = 0; round < 60; round++) {
		struct sock_fprog program = {0, NULL};
		int numbers = round % 3 == 0 ? 20 : 480;
		size_t n = furca_test_random(&state) % 180;

		filter.n = 0;
		for (size_t i = 0; i < n; i++) {
			struct furca_filter_rule rule = random_rule(&state, numbers);

			furca_filter_add(&filter, &rule);
		}
		ck_assert_int_eq(furca_filter_compile(&filter, &program), 0);
		for (int i = 0; i < 20000; i++) {
			struct seccomp_data data = {.nr = i % (numbers + 5), .arch = FURCA_ARCH_AUDIT};

			for (int k = 0; k < 3; k++)
				data.args[k] = small(&state) | (furca_test_random(&state) % 8 == 0 ? 1ULL << 32 : 0);
			int answer = verdict(&program, &data);
			ck_assert_msg(right(&filter, &data, answer), "round %d, call %d: %d", round, data.nr, answer);
		}
		free(program.filter);
	}
}
END_TEST

START_TEST(too_many_rules_are_refused)
{
	static struct furca_filter filter;
	struct sock_fprog program = {0, NULL};

	for (int i = 0; i <= FURCA_FILTER_RULES; i++)
		furca_filter_add(&filter, &(struct furca_filter_rule){.number = i, .error = EPERM});
	ck_assert_int_eq(furca_filter_compile(&filter, &program), -E2BIG);
	ck_assert_ptr_null(program.filter);
}
END_TEST

/* ---- the filters of copies --------------------------------------------------------------------------------------- */

static void prepare(void)
{
	struct furca_err err = FURCA_ERR_INIT;

	for (unsigned filter = 0; filter < FURCA_FILTERS; filter++)
		ck_assert_int_eq(furca_privileges_prepare(filter, &err), 0);
}

START_TEST(whole_calls_are_refused)
{
	static const unsigned bits[] = {0, FURCA_FILTER_NO_METADATA, FURCA_FILTER_NO_IPC, FURCA_FILTER_NO_OTHERS};
	static const long allowed[] = {SYS_read,    SYS_openat, SYS_execve,	SYS_futex,   SYS_mmap,
				       SYS_kill,    SYS_exit,	SYS_epoll_wait, SYS_getpid,  SYS_pidfd_open,
				       SYS_connect, SYS_wait4,	SYS_renameat,	SYS_getpgid, SYS_close_range};

	prepare();
	for (unsigned filter = 0; filter < FURCA_FILTERS; filter++) {
		for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
			for (const char *const *name = furca_privileges_denied(bits[i]); *name; name++) {
				int number = seccomp_syscall_resolve_name(*name);
				int expected = (filter & bits[i]) == bits[i] ? EPERM : 0;

				if (number >= 0)
					ck_assert_msg(of(filter, number, 0, 0, 0) == expected, "%s, filter %u", *name,
						      filter);
			}
		for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
			ck_assert_int_eq(of(filter, allowed[i], 1, 2, 3), 0);
		ck_assert_int_eq(of(filter, SYS_clone3, 0, 0, 0), ENOSYS);
	}
}
END_TEST

START_TEST(other_numbers_are_refused)
{
	struct seccomp_data data = {.nr = SYS_read, .arch = FURCA_ARCH_AUDIT + 1};

	prepare();
	ck_assert_int_eq(verdict(furca_privileges_program(0), &data), ENOSYS);
#ifdef FURCA_ARCH_OTHER_NUMBERS
	ck_assert_int_eq(of(0, FURCA_ARCH_OTHER_NUMBERS, 0, 0, 0), ENOSYS);
	ck_assert_int_eq(of(0, FURCA_ARCH_OTHER_NUMBERS + SYS_read, 0, 0, 0), ENOSYS);
	ck_assert_int_eq(of(0, FURCA_ARCH_OTHER_NUMBERS - 1, 0, 0, 0), 0);
	ck_assert_int_eq(of(0, -1, 0, 0, 0), 0);
#endif
}
END_TEST

START_TEST(namespaces_are_refused)
{
	static const unsigned flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
					 CLONE_NEWIPC,	CLONE_NEWUTS, CLONE_NEWCGROUP};

	prepare();
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		ck_assert_int_eq(of(0, SYS_clone, flags[i] | 17, 0, 0), EPERM);
		ck_assert_int_eq(of(0, SYS_clone, HALF(flags[i] | CLONE_VM), 0, 0), EPERM);
		ck_assert_int_eq(of(0, SYS_unshare, flags[i] | CLONE_FS, 0, 0), EPERM);
	}
	ck_assert_int_eq(of(0, SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_SETTLS, 0, 0), 0);
	ck_assert_int_eq(of(0, SYS_clone, 17, 0, 0), 0);
	ck_assert_int_eq(of(0, SYS_unshare, CLONE_FILES | CLONE_FS, 0, 0), 0);
	ck_assert_int_eq(of(0, SYS_unshare, 0x80, 0, 0), EPERM);
}
END_TEST

START_TEST(only_some_sockets_are_left)
{
	prepare();
	for (unsigned filter = 0; filter < 4; filter++)
		for (uint64_t family = 0; family < 70; family++) {
			bool network = family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
			bool there = (family == AF_UNIX && !(filter & FURCA_FILTER_NO_UNIX)) ||
				     (network && !(filter & FURCA_FILTER_NO_NETWORK));
			int expected = there ? 0 : EAFNOSUPPORT;

			ck_assert_int_eq(of(filter, SYS_socket, family, SOCK_STREAM, 0), expected);
			ck_assert_int_eq(of(filter, SYS_socket, HALF(family), SOCK_STREAM, 0), expected);
		}
	ck_assert_int_eq(of(0, SYS_socket, (uint32_t)-1, SOCK_STREAM, 0), EAFNOSUPPORT);
	ck_assert_int_eq(of(0, SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0), 0);
	ck_assert_int_eq(of(FURCA_FILTER_NO_UNIX, SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
	ck_assert_int_eq(of(FURCA_FILTER_NO_UNIX, SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), EPERM);
	ck_assert_int_eq(of(FURCA_FILTER_NO_UNIX, SYS_socketpair, HALF(AF_UNIX), HALF(SOCK_DGRAM), 0), EPERM);
}
END_TEST

START_TEST(controls_are_refused)
{
	prepare();
	ck_assert_int_eq(of(0, SYS_ioctl, 0, TIOCSTI, 0), EPERM);
	ck_assert_int_eq(of(0, SYS_ioctl, 0, HALF(TIOCSTI), 0), EPERM);
	ck_assert_int_eq(of(0, SYS_ioctl, 0, 0x541c, 0), EPERM);
	ck_assert_int_eq(of(0, SYS_ioctl, 0, TIOCGWINSZ, 0), 0);
	ck_assert_int_eq(of(0, SYS_ioctl, 0, 0x40086602, 0), 0);
	ck_assert_int_eq(of(FURCA_FILTER_NO_METADATA, SYS_ioctl, 0, 0x40086602, 0), EPERM);
	ck_assert_int_eq(of(FURCA_FILTER_NO_METADATA, SYS_ioctl, 0, 0x401c5820, 0), EPERM);
	ck_assert_int_eq(of(FURCA_FILTER_NO_METADATA, SYS_ioctl, 0, TIOCSTI, 0), EPERM);
	ck_assert_int_eq(of(FURCA_FILTER_NO_METADATA, SYS_fcntl, 0, HALF(F_SETLKW), 0), EPERM);
	ck_assert_int_eq(of(FURCA_FILTER_NO_METADATA, SYS_fcntl, 0, F_GETLK, 0), 0);
	ck_assert_int_eq(of(0, SYS_fcntl, 0, F_SETLKW, 0), 0);
}
END_TEST

START_TEST(others_limits_stay)
{
	const unsigned no_others = FURCA_FILTER_NO_OTHERS;

	prepare();
	ck_assert_int_eq(of(0, SYS_prlimit64, 1, RLIMIT_NOFILE, 0x1000), EPERM);
	ck_assert_int_eq(of(0, SYS_prlimit64, HALF(1), RLIMIT_NOFILE, 1ULL << 40), EPERM);
	ck_assert_int_eq(of(0, SYS_prlimit64, 1, RLIMIT_NOFILE, 0), 0);
	ck_assert_int_eq(of(0, SYS_prlimit64, 0, RLIMIT_NOFILE, 0x1000), 0);
	ck_assert_int_eq(of(no_others, SYS_prlimit64, 1, RLIMIT_NOFILE, 0), EPERM);
	ck_assert_int_eq(of(no_others, SYS_prlimit64, 0, RLIMIT_NOFILE, 0x1000), 0);
	ck_assert_int_eq(of(no_others, SYS_sched_setaffinity, 2, 0, 0), EPERM);
	ck_assert_int_eq(of(no_others, SYS_sched_setaffinity, 0, 8, 0x1000), 0);
	ck_assert_int_eq(of(no_others, SYS_setpriority, PRIO_PROCESS, 0, 5), 0);
	ck_assert_int_eq(of(no_others, SYS_setpriority, PRIO_PROCESS, 1, 5), EPERM);
	ck_assert_int_eq(of(no_others, SYS_setpriority, PRIO_USER, 0, 5), EPERM);
	ck_assert_int_eq(of(0, SYS_setpriority, PRIO_USER, 0, 5), 0);
}
END_TEST

static void add(TCase *tests)
{
	tcase_add_test(tests, programs_do_what_their_rules_say);
	tcase_add_test(tests, too_many_rules_are_refused);
	tcase_add_test(tests, whole_calls_are_refused);
	tcase_add_test(tests, other_numbers_are_refused);
	tcase_add_test(tests, namespaces_are_refused);
	tcase_add_test(tests, only_some_sockets_are_left);
	tcase_add_test(tests, controls_are_refused);
	tcase_add_test(tests, others_limits_stay);
}

int main(void)
{
	return furca_test_main("filter", add);
}
