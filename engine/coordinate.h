/*
 * Arguments of requests, checked: an execute becomes a plan or a refusal, in the order and the words of the protocol. Nothing is
 * created or bound here. Plans hold views of the request's bytes, which the caller keeps.
 */
#pragma once

#include "bridge/wire/limits.h"
#include "base/buf.h"
#include "bridge/wire/advice.h"
#include "bridge/wire/messages.h"
#include "engine/limits.h"
#include "engine/registry.h"

enum furca_mode { FURCA_STATELESS, FURCA_STATEFUL, FURCA_READ_ONLY };
enum furca_retry { FURCA_RETRY_SAFE, FURCA_RETRY_ALWAYS, FURCA_RETRY_NEVER };

/* "stateless", … */
const char *furca_mode_word(enum furca_mode mode);

struct furca_plan {
	const struct furca_lang *lang;
	enum furca_mode mode;
	uint64_t venv; /* 0: none */
	bool has_id;
	uint64_t id;
	struct furca_view name; /* empty: none */
	struct furca_view code;
	bool blank;
	int64_t timeout_us; /* of waiting, building and running together */
	bool rollback;	    /* on_error */
	enum furca_retry retry;
	struct furca_limits limits;
	bool has_limits;
	struct furca_view cwd, env_vars; /* empty: none; env_vars a packed map */
	size_t max_output;
	bool within_given; /* the client says which of its capability calls it serves meanwhile … */
	uint64_t within;   /* … by its call_id; 0: none */
	bool stream;
	unsigned waived;   /* barriers that the caller lets go, bits of enum furca_barrier */
	unsigned required; /* and those it asks for besides */
	bool network;	   /* the network may be used */
};

/* What a plan is checked against. */
struct furca_coordinates {
	const struct furca_registry *registry;
	int64_t default_timeout_us;
	unsigned required;			       /* the configured minimum of barriers */
	unsigned without;			       /* and those that nobody gets */
	bool (*venv_known)(void *user, uint64_t venv); /* NULL: there are no environments */
	void *user;
};

/*
 * Checks `args` (a packed map). 0 and *ret, or -errno with *err (always FURCA_E_VALIDATION but for memory). `function`: the arguments of
 * call_function's coordinate, where `code` is not asked for.
 */
int furca_coordinate_plan(const struct furca_coordinates *at, struct furca_view args, bool function,
			  struct furca_plan *ret, struct furca_err *err);

/*
 * The session a stateful or read-only plan means: an existing entry, or NULL where a new one is to be made with *ret_id. Never
 * fails on a plan that furca_coordinate_plan gave out while the registry has not changed.
 */
struct furca_entry *furca_coordinate_session(const struct furca_coordinates *at, const struct furca_plan *plan,
					     uint64_t *ret_id);

/* Whether UTF-8 text can be a session's name: 1 to 64 printable characters, not all of them spaces. */
bool furca_coordinate_good_name(struct furca_view name);

/* What to do about a channel that did not come beside attach_session. */
#define FURCA_ADVICE_CHANNEL "Say hello with frames=true, and send one end of a socketpair beside the request."

/* For suggestions: writes the arguments that name a session by its id. Returns `buf`. */
const char *furca_coordinate_place(char buf[FURCA_ADVICE_TEXT], const struct furca_key *key);

/*
 * For suggestions: writes arguments that name a session which exists, of that language and environment (NULL: any), the nearest to
 * `name`: "session_name='audit'", or by its id. False where there is none.
 */
bool furca_coordinate_example(char buf[FURCA_ADVICE_TEXT], const struct furca_registry *registry,
			      const struct furca_lang *lang, const uint64_t *venv, struct furca_view name);

/* Refuses the argument `key`, whose name a session has; the suggestion is one that none has. -EINVAL. */
int furca_coordinate_taken(const struct furca_registry *registry, const char *key, struct furca_view name,
			   struct furca_err *err);

/* Packs the arguments as they were understood, long text cut: the value of `received`. `plan` may be NULL (nothing was). */
void furca_coordinate_received(struct furca_view args, const struct furca_plan *plan, struct furca_buf *out);

/* The arguments of the other methods that name a session. */
struct furca_selector {
	const struct furca_lang *lang; /* NULL: not given */
	bool has_id, has_venv;
	uint64_t id, venv;
	struct furca_view name;	  /* session_name */
	struct furca_view detail; /* "" where not given */
	struct furca_view word;	  /* name, new_name or label, of the method that has one */
	uint64_t steps;		  /* 1 by default */
	uint64_t msgid, offset, length;
	uint64_t output_id; /* 0: not given */
	struct furca_view stream;
};

/* Checks the keys and types of `args` for that method. 0, or -errno with *err. */
int furca_coordinate_select(enum furca_method method, struct furca_view args, struct furca_selector *ret,
			    struct furca_err *err);

/*
 * The one session that a selector means. NULL with *err: none given, unknown, or more than one fits. `*ret_missing` (may be NULL) is set
 * where it was named well but is not there.
 */
struct furca_entry *furca_coordinate_find(const struct furca_registry *registry, const struct furca_selector *selector,
					  bool *ret_missing, struct furca_err *err);
