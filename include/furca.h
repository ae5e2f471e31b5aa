/*
 * furca: the client library. Runs code at coordinates (language, state mode, session, environment) in an engine, and serves
 * the capabilities that this code calls. doc/protocol.md says what the engine's methods and results mean.
 *
 * Threads: all functions on a client may be called from any thread at once, but furca_close, which must be the last. The
 * library starts no threads: whoever waits for an answer reads the connection for all, and runs capability callbacks that are
 * due. A callback may call these functions, furca_execute too. To serve capabilities while nobody waits, or several at once,
 * call furca_serve from threads of your own.
 *
 * Ownership: what is passed in is borrowed for the call. What comes out is the caller's, given back by the function named with it.
 *
 * Failure: functions return 0 or more, or -errno, and then fill *err where it is not NULL. A refused or failed execution is no
 * failure of the function: it returns 0 with result.ok false. After -EPIPE the connection is gone for good.
 *
 * Times are seconds; FURCA_FOREVER waits without end. Text is UTF-8. "Packed" is msgpack.
 */
#ifndef FURCA_H
#define FURCA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FURCA_FOREVER (-1.0)

struct furca_client;

struct furca_error {
	int code;	      /* errno */
	char message[512];    /* one sentence */
	char suggestion[512]; /* what to change; may be empty */
};

/*
 * Connects to a running engine. `socket` NULL: $FURCA_SOCKET, else $XDG_RUNTIME_DIR/furca.sock, else /tmp/furca-UID/furca.sock.
 * -ECONNREFUSED or -ENOENT where none runs. Blocks as connect(2) on a local socket does. Give back by furca_close.
 */
int furca_connect(const char *socket, struct furca_client **ret, struct furca_error *err);

/* Writes the path that furca_connect(NULL) takes to `buf`. 0, or -ENAMETOOLONG. */
int furca_default_socket(char *buf, size_t size);

struct furca_private {
	const char *program;   /* the furca program; NULL: $FURCA_PROGRAM, else the installed one */
	const char *state_dir; /* NULL: the user's own, where built environments are kept */
	const char *workdir;   /* where sessions start; NULL: the current directory */
	const char *config;    /* a configuration file; NULL: none */
};

/*
 * Starts an engine of this client's own: a child process that serves nobody else, ends with furca_close, and also where this
 * process ends in any other way. (An engine needs signals, waits and children of its own, so it cannot live in this process.)
 * `options` may be NULL. Blocks until the engine answers, 20 seconds at most.
 */
int furca_open_private(const struct furca_private *options, struct furca_client **ret, struct furca_error *err);

/*
 * Ends the connection: executes under way are cancelled, capabilities go. A private engine is waited for. No other call may be
 * under way. Accepts NULL.
 */
void furca_close(struct furca_client *client);

/* The connection's descriptor, for poll(2): readable means that furca_serve(client, 0) has something to do. */
int furca_fd(const struct furca_client *client);

/* ------------------------------------------------------------------------------------------------------------ executions */

typedef void furca_output_fn(void *user, const char *stream, const char *data, size_t size);

/* The arguments of execute. Begin with FURCA_EXECUTE, then set what differs. NULL, 0 and FURCA_NONE leave an argument out. */
#define FURCA_NONE INT64_MIN

struct furca_execute {
	const char *code;
	size_t code_size;	/* 0: up to the NUL */
	const char *language;	/* "python", "bash" */
	const char *state_mode; /* "stateless", "stateful", "read_only" */
	const char *session_name;
	int64_t session_id, venv_id;
	double timeout_s;     /* <= 0: the engine's */
	const char *on_error; /* "keep", "rollback" */
	const char *retry;    /* "safe", "always", "never" */
	const char *cwd;
	uint64_t max_output_bytes;
	const void *more; /* further arguments: a packed map (isolation, limits, env_vars, …) */
	size_t more_size;
	furca_output_fn
		*on_output; /* asks for a stream: called with output as it comes, before the call that waits returns */
	void *user;	    /* its first argument */
};

#define FURCA_EXECUTE(language_, code_)                                                                                \
	{                                                                                                              \
		.code = (code_), .language = (language_), .session_id = FURCA_NONE, .venv_id = FURCA_NONE              \
	}

/* The result map, read. Pointers lie in `packed`'s memory, are NUL-terminated, and NULL where the map has nil. */
struct furca_result {
	bool ok;
	const char *out, *err; /* stdout and stderr; never NULL */
	size_t out_size, err_size;
	const char *result_text;
	const char *error, *error_type, *suggestion;
	const char *state; /* "committed", "unchanged", "rolled_back", "lost" */
	bool has_exit_code;
	int64_t exit_code;
	const char *session_language, *session_name; /* NULL language: no session */
	int64_t session_id, venv_id;		     /* FURCA_NONE: none */
	bool session_created, retried;
	double duration_ms;
	const void *packed; /* the whole map */
	size_t packed_size;
	void *memory;
};

/* Frees what a result holds and empties it. Accepts an empty one. */
void furca_result_done(struct furca_result *result);

/* Runs code and waits for the result, without an end of its own: args->timeout_s is the engine's. */
int furca_execute(struct furca_client *client, const struct furca_execute *args, struct furca_result *ret,
		  struct furca_error *err);

/*
 * The same in two steps. Each start is waited for once; `timeout_s` bounds only the wait: after -ETIMEDOUT wait again. Ids are
 * what furca_cancel and read_output take.
 */
int furca_start(struct furca_client *client, const struct furca_execute *args, uint64_t *ret_id,
		struct furca_error *err);
int furca_wait(struct furca_client *client, uint64_t id, double timeout_s, struct furca_result *ret,
	       struct furca_error *err);

/* Interrupts an execute of this client; its result comes to who waits for it. 1, or 0 where nothing was under way by that id. */
int furca_cancel(struct furca_client *client, uint64_t id, struct furca_error *err);

/* ---------------------------------------------------------------------------------------------------------- other methods */

/*
 * Any method of the protocol: `args` is a packed map (NULL: none). *ret is the packed result, malloc'ed; give back by free().
 * -ETIMEDOUT where no answer came in time (a late one is dropped), -EPROTO where the engine answered with a protocol error.
 */
int furca_call(struct furca_client *client, const char *method, const void *args, size_t args_size, double timeout_s,
	       void **ret, size_t *ret_size, struct furca_error *err);

/* A session in the methods below. Begin with FURCA_SESSION. */
struct furca_session {
	const char *language, *name;
	int64_t id, venv_id;
};

#define FURCA_SESSION(language_, name_)                                                                                \
	{                                                                                                              \
		.language = (language_), .name = (name_), .id = FURCA_NONE, .venv_id = FURCA_NONE                      \
	}

/* list_sessions, inspect_session (`detail` NULL: "names"), close_session, each with the packed result as furca_call gives it. */
int furca_list_sessions(struct furca_client *client, void **ret, size_t *ret_size, struct furca_error *err);
int furca_inspect_session(struct furca_client *client, const struct furca_session *session, const char *detail,
			  void **ret, size_t *ret_size, struct furca_error *err);
int furca_close_session(struct furca_client *client, const struct furca_session *session, void **ret, size_t *ret_size,
			struct furca_error *err);

/* A packed value as JSON text, malloc'ed; give back by free(). Bytes become base64, NaN and infinities null. NULL: no memory. */
char *furca_json(const void *packed, size_t size);

/* Called with notifications (`method` "env_progress", "release"; "output" goes to on_output); `params` is a packed map. Must not wait. */
typedef void furca_notification_fn(void *user, const char *method, const void *params, size_t size);
void furca_on_notification(struct furca_client *client, furca_notification_fn *fn, void *user);

/* ----------------------------------------------------------------------------------------------------------- capabilities */

/* A call of a capability, valid during the callback. */
struct furca_capability_call {
	const char *name;
	const void *args; /* a packed array */
	size_t args_size;
	const void *kwargs; /* a packed map */
	size_t kwargs_size;
	bool ours;	     /* code of this client's own execute… */
	uint64_t execute_id; /* …with this id */
	const char *handle;  /* NULL, or the handle whose method `name` is; not NUL-terminated */
	size_t handle_size;
	uint64_t call_id; /* the engine's, never used twice in its life */
	bool read;	  /* `name` is an attribute of the handle, not a method: answer by furca_answer_attribute */
	struct furca_answer *answer;
};

typedef void furca_capability_fn(void *user, const struct furca_capability_call *call);

/*
 * The answer, once from within the callback: a packed value (copied), or a failure that the code sees as an exception named `type`.
 * A callback that gives none answers nil.
 */
void furca_answer_value(const struct furca_capability_call *call, const void *packed, size_t size);
void furca_answer_error(const struct furca_capability_call *call, const char *type, const char *message);

/*
 * Offers a capability. `effect` "read" or "write" (NULL: "write", which read-only code may not call). `doc` and `params` (a packed value)
 * may be NULL. The callback runs in a thread that waits in this library, several at once where several wait.
 *
 * A callback may run code. What it starts by furca_start and furca_execute says by itself which call is being served (`within`): a
 * stateful call of the session that waits for the callback would wait for itself, and is refused at once, over any number of
 * sessions in between. A thread to which a callback hands its work can say so too, with `within` and call->call_id in furca_execute's
 * `more` or furca_call's arguments; where nobody says it, such a call is refused after a second.
 */
int furca_capability_register(struct furca_client *client, const char *name, const char *effect, const char *doc,
			      const void *params, size_t params_size, furca_capability_fn *fn, void *user,
			      struct furca_error *err);

/*
 * Handles: a value that a callback answers with may hold ext 2 with a text of the callback's choice (1 to 200 bytes, no dot). Code gets an object;
 * its methods come to `fn`, with call->handle, and call->name the method's. Code that lets the object go causes the notification
 * "release" {handle}, once for each time it was given.
 */
void furca_on_handle_call(struct furca_client *client, furca_capability_fn *fn, void *user);

/*
 * Capabilities that are registered from now on take objects of code (ext 2 in their arguments), and their handles tell attributes: code that
 * says `object.name` is answered by furca_answer_attribute, a packed value, or NULL: it is a method, which will be called.
 */
void furca_take_objects(struct furca_client *client, bool take);
void furca_answer_attribute(const struct furca_capability_call *call, const void *packed, size_t size);

/*
 * From within a callback, calls an object that code gave: `handle` is the text of its ext 2, `name` a method ("": the object itself) or with `read` an
 * attribute. `args` and `kwargs`: a packed array and a packed map, or NULL. The answer as furca_call gives it, {ok: true, value} or {ok: false, error,
 * type, message, traceback}; the value of an attribute is {value} or {method: true}. 0 or -errno. "release_object" {handle} gives it back.
 */
int furca_object_call(const struct furca_capability_call *call, struct furca_client *client, const char *handle,
		      size_t handle_size, const char *name, bool read, const void *args, size_t args_size,
		      const void *kwargs, size_t kwargs_size, void **ret, size_t *ret_size, struct furca_error *err);

/* Reads the connection and serves capabilities for `timeout_s`. 0 at its end, -EPIPE where the connection has gone. */
int furca_serve(struct furca_client *client, double timeout_s, struct furca_error *err);

#ifdef __cplusplus
}
#endif

#endif
