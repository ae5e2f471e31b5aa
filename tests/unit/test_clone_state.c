/* What the kernel and the processor keep for each thread: the same in the clone, undisturbed in the original. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/clone_harness.h"

#define THREADS 6
static atomic_int broken, stop;
static atomic_long rounds[THREADS];
static pthread_t threads[THREADS];

/* In the clone: every thread goes on, none found anything wrong, and they can be joined. */
static int progress_check(void)
{
	long before[THREADS];
	int all = 0;

	for (int i = 0; i < THREADS; i++)
		before[i] = rounds[i];
	for (int wait = 0; wait < 5000 && !all && !broken; wait++) {
		harness_sleep_us(1000);
		all = 1;
		for (int i = 0; i < THREADS; i++)
			all &= rounds[i] > before[i] + 3;
	}
	if (broken)
		return broken;
	for (int i = 0; i < THREADS && !all; i++)
		dprintf(2, "thread %d made %ld rounds\n", i, rounds[i] - before[i]);
	REQUIRE(all);
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return broken;
}

static int with_threads(void *(*fn)(void *))
{
	stop = broken = 0;
	for (long i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, fn, (void *)i) == 0);
	harness_sleep_us(20000);
	for (int i = 0; i < harness_n(); i++) {
		harness_sleep_us(harness_random(2000));
		REQUIRE(harness_try(progress_check) == 0);
		REQUIRE(!broken);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return broken;
}

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			broken = __LINE__;                                                                             \
	} while (0)

static __thread int canary;
static __thread char filled[300];

static void look(long id, pid_t tid, const char *name, const cpu_set_t *processors, const sigset_t *blocked)
{
	char got[16];
	cpu_set_t set;
	sigset_t mask;

	errno = 0;
	int want = id & 1 ? EBADF : ENOENT;
	int r = id & 1 ? close(-1) : access("/nonexistent", R_OK);
	for (volatile int spin = 0; spin < 50; spin++)
		;
	CHECK(r == -1 && errno == want);
	CHECK(canary == 1000 + id && filled[299] == (char)id);
	CHECK(syscall(SYS_gettid) == tid && gettid() == tid);
	prctl(PR_GET_NAME, got);
	CHECK(strcmp(got, name) == 0);
	sched_getaffinity(0, sizeof(set), &set);
	CHECK(CPU_EQUAL(&set, processors));
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	CHECK(memcmp(&mask, blocked, 8) == 0);
	unsigned cpu = 9999;
	/* From the rseq area, where it is registered. */
	CHECK(getcpu(&cpu, NULL) == 0 && cpu < 9999 && sched_getcpu() >= 0);
	CHECK(prctl(PR_GET_TIMERSLACK) == 60000 + id);
}

static void *kept(void *argument)
{
	long id = (long)argument;
	pid_t tid = (pid_t)syscall(SYS_gettid);
	char name[16];
	cpu_set_t processors;
	sigset_t blocked;

	snprintf(name, sizeof(name), "worker-%ld", id);
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_TIMERSLACK, 60000 + id);
	CPU_ZERO(&processors);
	CPU_SET((size_t)(id % sysconf(_SC_NPROCESSORS_ONLN)), &processors);
	sched_setaffinity(0, sizeof(processors), &processors);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN + (int)(id % 20));
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	canary = 1000 + (int)id;
	memset(filled, (int)id, sizeof(filled));
	while (!stop) {
		look(id, tid, name, &processors, &blocked);
		/* Busy threads of two sessions on one processor make the scheduler's session groups starve each other. */
		harness_sleep_us(50);
		rounds[id]++;
	}
	return NULL;
}

static int kept_body(void)
{
	return with_threads(kept);
}

/* libc broadcasts setgid to all threads by the very signal that stops threads. */
static void *set_group(void *argument)
{
	long id = (long)argument;

	while (!stop) {
		if (id == 0)
			CHECK(setgid(getgid()) == 0);
		harness_sleep_us(id == 0 ? 100 : 500);
		rounds[id]++;
	}
	return NULL;
}

static int broadcast_body(void)
{
	return with_threads(set_group);
}

#ifdef __x86_64__
#include <cpuid.h>
static int wide;

struct pattern {
	double lane[16][8];
	uint64_t general[4];
	double stack[4];
	uint32_t mxcsr;
	uint16_t fcw;
};

#define FIELD(name) offsetof(struct pattern, name)

/* Loads everything, then compares for ever; ends on a difference or `stop`. */
static long compare(const struct pattern *p, struct pattern *out, const atomic_int *stop_word, atomic_long *counter)
{
	long bad = 0;

	__asm__ volatile(
		"ldmxcsr %c[mx](%[p])\n fldcw %c[cw](%[p])\n"
		"fldl %c[st]+0(%[p])\n fldl %c[st]+8(%[p])\n fldl %c[st]+16(%[p])\n fldl %c[st]+24(%[p])\n"
		"vmovupd 0(%[p]),%%ymm0\n vmovupd 64(%[p]),%%ymm1\n vmovupd 128(%[p]),%%ymm2\n"
		"vmovupd 192(%[p]),%%ymm3\n vmovupd 256(%[p]),%%ymm4\n vmovupd 320(%[p]),%%ymm5\n"
		"vmovupd 384(%[p]),%%ymm6\n vmovupd 448(%[p]),%%ymm7\n vmovupd 512(%[p]),%%ymm8\n"
		"vmovupd 576(%[p]),%%ymm9\n vmovupd 640(%[p]),%%ymm10\n vmovupd 704(%[p]),%%ymm11\n"
		"mov %c[g]+0(%[p]),%%r12\n mov %c[g]+8(%[p]),%%r13\n mov %c[g]+16(%[p]),%%r14\n mov %c[g]+24(%[p]),%%rdx\n"
		"1: incq (%[ctr])\n"
#define SAME(i) "vxorpd 64*" #i "(%[p]),%%ymm" #i ",%%ymm15\n vptest %%ymm15,%%ymm15\n jnz 2f\n"
		SAME(0) SAME(1) SAME(2) SAME(3) SAME(4) SAME(5) SAME(6) SAME(7) SAME(8) SAME(9) SAME(10) SAME(
			11) "cmp %c[g]+0(%[p]),%%r12\n jne 2f\n cmp %c[g]+8(%[p]),%%r13\n jne 2f\n"
			    "cmp %c[g]+16(%[p]),%%r14\n jne 2f\n cmp %c[g]+24(%[p]),%%rdx\n jne 2f\n"
			    /* The red zone below the stack pointer. */
			    "movq %%rdx,-8(%%rsp)\n mov -8(%%rsp),%%rcx\n cmp %%rdx,%%rcx\n jne 2f\n"
			    "cmpl $0,(%[stop])\n je 1b\n jmp 3f\n"
			    "2: mov $1,%[bad]\n"
			    "3: fstpl %c[st]+24(%[o])\n fstpl %c[st]+16(%[o])\n fstpl %c[st]+8(%[o])\n fstpl %c[st]+0(%[o])\n"
			    "stmxcsr %c[mx](%[o])\n fnstcw %c[cw](%[o])\n vzeroupper\n"
		: [bad] "+r"(bad)
		: [p] "r"(p), [o] "r"(out), [stop] "r"(stop_word), [ctr] "r"(counter), [mx] "i"(FIELD(mxcsr)),
		  [cw] "i"(FIELD(fcw)), [st] "i"(FIELD(stack)), [g] "i"(FIELD(general))
		: "memory", "cc", "rcx", "rdx", "r12", "r13", "r14", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
		  "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm15");
	return bad;
}

__attribute__((target("avx512f,avx512bw"))) static long compare_wide(const struct pattern *p,
								     const atomic_int *stop_word, atomic_long *counter)
{
	long bad = 0;

	__asm__ volatile(
		"vmovupd 0(%[p]),%%zmm16\n vmovupd 64(%[p]),%%zmm17\n vmovupd 128(%[p]),%%zmm18\n vmovupd 192(%[p]),%%zmm31\n"
		"vmovupd 256(%[p]),%%zmm0\n kmovq %c[g]+16(%[p]),%%k5\n"
		"1: incq (%[ctr])\n"
#define SAME_WIDE(i, r) "vpcmpeqq 64*" #i "(%[p]),%%zmm" #r ",%%k1\n kmovw %%k1,%%ecx\n cmp $0xff,%%ecx\n jne 2f\n"
		SAME_WIDE(0, 16) SAME_WIDE(1, 17) SAME_WIDE(2, 18) SAME_WIDE(3, 31)
			SAME_WIDE(4, 0) "kmovq %%k5,%%rcx\n cmp %c[g]+16(%[p]),%%rcx\n jne 2f\n"
					"cmpl $0,(%[stop])\n je 1b\n jmp 3f\n2: mov $1,%[bad]\n3: vzeroupper\n"
		: [bad] "+r"(bad)
		: [p] "r"(p), [stop] "r"(stop_word), [ctr] "r"(counter), [g] "i"(FIELD(general))
		: "memory", "cc", "rcx", "k1", "k5", "xmm0");
	return bad;
}

static void *registers(void *argument)
{
	long id = (long)argument;
	struct pattern p, out;
	uint64_t x = 88172645463325252ULL ^ ((uint64_t)id * 0x9e3779b97f4a7c15ULL);

	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 8; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			p.lane[i][k] = (double)(int64_t)(x >> 12);
		}
	for (int i = 0; i < 4; i++) {
		p.general[i] = x * (uint64_t)(i + 3);
		p.stack[i] = (double)id * 1.5 + i;
	}
	/* Rounding modes differ from thread to thread. */
	p.mxcsr = 0x1f80U | (uint32_t)(id & 3) << 13;
	p.fcw = (uint16_t)(0x37fU | (unsigned)(id & 3) << 10);
	if (wide && (id & 1)) {
		CHECK(compare_wide(&p, &stop, &rounds[id]) == 0);
		return NULL;
	}
	CHECK(compare(&p, &out, &stop, &rounds[id]) == 0);
	CHECK(memcmp(out.stack, p.stack, sizeof(out.stack)) == 0 && (out.mxcsr & 0xffc0) == p.mxcsr &&
	      out.fcw == p.fcw);
	return NULL;
}

static int registers_body(void)
{
	unsigned a, b, c, d;

	__cpuid_count(7, 0, a, b, c, d);
	wide = (b >> 16 & 1) && (b >> 30 & 1);
	return with_threads(registers);
}
#endif

int main(void)
{
	static const struct harness_case cases[] = {
		{"errno, thread locals, names, affinity, masks", kept_body},
		{"setgid broadcasts", broadcast_body},
#ifdef __x86_64__
		{"registers", registers_body},
#endif
	};

	return harness_main("clone_state", cases, sizeof(cases) / sizeof(cases[0]));
}
