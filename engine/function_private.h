/* Stored functions: what function.c (what is kept), function_method.c (requests) and function_call.c (calls) share. */
#pragma once

#include "bridge/wire/limits.h"
#include "engine/function.h"
#include "engine/loop.h"
#include "bridge/wire/pack.h"

#define FURCA_FUNCTION_MAX_DOC (64U << 10)
#define FURCA_FUNCTION_MAX 10000 /* stored at once */

struct furca_function {
	struct furca_function *next; /* by name */
	char *name, *language, *source, *capabilities, *doc;
	uint64_t venv_id;
	double created_at, changed_at;
};

/* An add_function whose source is being checked. */
struct furca_function_check {
	struct furca_function_check *next;
	struct furca_functions *functions;
	furca_client_id client;
	uint64_t msgid;
	struct furca_function *made; /* what is to be kept */
	struct furca_buf received;
	struct furca_tool *tool;
	bool dropped;
};

/* A lane's call under way. */
struct furca_function_pending {
	struct furca_function_pending *next;
	furca_function_origin origin;
	bool prints; /* its value is what it prints (bash) */
	char name[FURCA_MAX_NAME + 1];
};

struct furca_functions {
	struct furca_loop *loop;
	struct furca_store *store;
	struct furca_envs *envs;
	struct furca_tool_spawner spawner;
	struct furca_functions_events events;
	char *workdir, *tool_path;
	struct furca_function *first;
	struct furca_function_check *checks;
	struct furca_function_pending *pending;
	unsigned count;
	bool stopping;
	furca_op_id ending;
	void (*stopped)(void *user);
	void *stopped_user;
};

/* function.c */
struct furca_function *furca_function_find(const struct furca_functions *functions, struct furca_view name);
/* The stored name nearest to one that is not known; NULL where none is stored. */
const char *furca_function_nearest(const struct furca_functions *functions, struct furca_view name);
void furca_function_free(struct furca_function *function);
/* The list of capabilities that it may call; nil: all. */
void furca_function_pack_capabilities(msgpack_packer *pk, const struct furca_function *function);
/* Takes it over, in the place of one with the same name. True where there was one. */
bool furca_function_keep(struct furca_functions *functions, struct furca_function *function);
void furca_function_drop(struct furca_functions *functions, struct furca_function *function);
void furca_function_check_free(struct furca_function_check *check);
void furca_functions_maybe_stopped(struct furca_functions *functions);
/* FURCA_E_VALIDATION: no function of that name, with the nearest one. */
int furca_function_unknown(const struct furca_functions *functions, struct furca_view name, struct furca_err *err);

/* function_call.c: call_function. 0, or -errno where it is to be refused. */
int furca_function_call_client(struct furca_functions *functions, furca_client_id client, uint64_t msgid,
			       struct furca_view args, struct furca_fd *memory, struct furca_err *err);
