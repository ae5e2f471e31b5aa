/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The builtins `capability` and `furca-fn`: calls out of the shell over lanes (bridge/wire/lane.h); and `furca-reset`. Each call opens a lane of
 * its own, so subshells, pipelines and background jobs call at once and no answer can reach another caller.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "bridge/wire/frame.h"
#include "bridge/wire/lane.h"
#include "bridge/wire/limits.h"
#include "bridge/wire/pack.h"
#include "langs/bash/bash_abi.h"
#include "langs/bash/json.h"
#include "langs/bash/shell.h"

#include "base/banned.h"

#define EXPORT __attribute__((visibility("default"), used))
#define ANSWER_MAX (FURCA_MAX_CAPABILITY + 4096U)

/* The words of a call, packed. */
struct words {
	const char *variable; /* of -v, or NULL */
	bool list;	      /* -l */
	bool read;	      /* -a: the name is a handle's attribute */
	bool release;	      /* -r: the name is a handle */
	const char *name;
	struct furca_buf args, kwargs; /* items, without the head */
	uint32_t n_args, n_kwargs;
};

static void words_done(struct words *words)
{
	furca_buf_done(&words->args);
	furca_buf_done(&words->kwargs);
}

static void pack_text(struct furca_buf *out, const char *text, size_t n)
{
	msgpack_packer packer;
	struct furca_view view = {(const uint8_t *)text, (const uint8_t *)text + n};

	furca_packer(&packer, out);
	if (furca_view_is_utf8(view))
		msgpack_pack_str_with_body(&packer, text, n);
	else
		msgpack_pack_bin_with_body(&packer, text, n);
}

/* The length of the name before = or :=, or -1 where the word is no key=value. */
static int key_length(const char *word)
{
	size_t n = 0;

	while (word[n] == '_' || (word[n] >= 'a' && word[n] <= 'z') || (word[n] >= 'A' && word[n] <= 'Z') ||
	       (n > 0 && word[n] >= '0' && word[n] <= '9'))
		n++;
	if (word[n] == '=' && n > 0)
		return (int)n;
	return word[n] == ':' && word[n + 1] == '=' ? (int)n : -1;
}

/* One argument: text, key=text, key:=json, or :=json for a positional value that is no text. */
static int add_word(struct words *words, const char *word, struct furca_err *err)
{
	int key = key_length(word);

	if (key < 0) {
		pack_text(&words->args, word, strlen(word));
		words->n_args++;
		return words->args.failed;
	}
	struct furca_buf *to = key > 0 ? &words->kwargs : &words->args;

	if (key > 0) {
		pack_text(to, word, (size_t)key);
		words->n_kwargs++;
	} else {
		words->n_args++;
	}
	if (word[key] == ':')
		return furca_json_read(to, word + key + 2, err);
	pack_text(to, word + key + 1, strlen(word + key + 1));
	return to->failed;
}

/* 0, or a negative error with *err set; EX_USAGE where there is no name. */
static int read_words(WORD_LIST *list, struct words *ret, struct furca_err *err)
{
	bool options = true;

	for (; list && options && list->word->word[0] == '-'; list = list->next) {
		const char *word = list->word->word;

		if (strcmp(word, "--") == 0) {
			options = false;
		} else if (strcmp(word, "-l") == 0) {
			ret->list = true;
		} else if (strcmp(word, "-a") == 0) {
			ret->read = true;
		} else if (strcmp(word, "-r") == 0) {
			ret->release = true;
		} else if (strcmp(word, "-v") == 0 && list->next) {
			list = list->next;
			ret->variable = list->word->word;
			if (!legal_identifier(ret->variable))
				return furca_fail(err, FURCA_E_VALIDATION, 0, "'%s' is no variable's name",
						  ret->variable);
		} else {
			return EX_USAGE;
		}
	}
	if (ret->list)
		return list || ret->read || ret->release ? EX_USAGE : 0;
	if (!list || (ret->release && (list->next || ret->read || ret->variable)))
		return EX_USAGE;
	ret->name = list->word->word;
	for (options = true, list = list->next; list; list = list->next) {
		int r = 0;

		if (options && strcmp(list->word->word, "--") == 0) {
			options = false;
		} else if (options) {
			r = add_word(ret, list->word->word, err);
		} else {
			pack_text(&ret->args, list->word->word, strlen(list->word->word));
			ret->n_args++;
		}
		if (r < 0)
			return furca_fail(err, FURCA_E_MEMORY, -r, "cannot pack the arguments");
	}
	return 0;
}

static int pack_call(struct furca_buf *out, enum furca_frame frame, const struct words *words, struct furca_err *err)
{
	bool calls = frame == FURCA_LANE_CAPABILITY || frame == FURCA_LANE_FUNCTION;
	msgpack_packer packer;
	size_t at = furca_frame_begin(out, &packer, frame, 1, calls ? 3U + words->read : words->release);

	if (words->release) {
		furca_pack_text(&packer, "handle");
		pack_text(out, words->name, strlen(words->name));
	}
	if (words->read) {
		furca_pack_text(&packer, "read");
		msgpack_pack_true(&packer);
	}
	if (calls) {
		furca_pack_text(&packer, "name");
		pack_text(out, words->name, strlen(words->name));
		furca_pack_text(&packer, "args");
		msgpack_pack_array(&packer, words->n_args);
		(void)furca_buf_append(out, words->args.data, words->args.len);
		furca_pack_text(&packer, "kwargs");
		msgpack_pack_map(&packer, words->n_kwargs);
		(void)furca_buf_append(out, words->kwargs.data, words->kwargs.len);
	}
	if (out->len > FURCA_MAX_CAPABILITY)
		return furca_fail(err, FURCA_E_LIMIT, 0, "the arguments are over the limit of %u bytes",
				  FURCA_MAX_CAPABILITY);
	int r = furca_frame_end(out, at, 0);
	return r < 0 ? furca_fail(err, FURCA_E_MEMORY, -r, "cannot pack the call") : 0;
}

/* Waits for the answer. An interrupt leaves by a jump, as in any builtin of bash's: nothing that needs a cleanup but `lane`. */
static int wait_answer(struct furca_fd *lane, struct furca_buf *in)
{
	struct pollfd p = {.fd = lane->n, .events = POLLIN};

	while (poll(&p, 1, -1) < 0) {
		if (errno != EINTR)
			return -errno;
		if (interrupt_state) {
			furca_fd_done(lane);
			furca_buf_done(in);
			throw_to_top_level();
		}
	}
	return 0;
}

static int print_bytes(const void *data, size_t n)
{
	(void)fwrite(data, 1, n, stdout);
	(void)putchar('\n');
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXECUTION_SUCCESS;
	builtin_error("write error: %s", strerror(errno));
	clearerr(stdout);
	return EXECUTION_FAILURE;
}

static int assign(const char *variable, const void *data, size_t n)
{
	FURCA_AUTO_FREE char *text = malloc(n + 1);
	SHELL_VAR *var = find_variable(variable);

	if (!text || memchr(data, 0, n)) {
		builtin_error("%s: %s", variable, text ? "the value contains a NUL byte" : "no memory");
		return EXECUTION_FAILURE;
	}
	memcpy(text, data, n);
	text[n] = '\0';
	if (var && var->attributes & att_readonly) {
		builtin_error("%s: readonly variable", variable);
		return EXECUTION_FAILURE;
	}
	(void)bind_variable(variable, text, 0);
	return EXECUTION_SUCCESS;
}

static int print_list(const struct furca_value *value)
{
	static const char *const kinds[] = {"capabilities", "functions"};
	struct furca_value list, item;
	int r = EXECUTION_SUCCESS;

	for (size_t k = 0; k < FURCA_COUNT(kinds); k++) {
		if (!furca_map_get(value->raw, kinds[k], &list) || list.kind != FURCA_ARRAY)
			continue;
		struct furca_view inside = furca_value_inside(&list);

		while (furca_value_next(&inside, &item) == 0) {
			FURCA_AUTO_BUF struct furca_buf line = FURCA_BUF_INIT;
			struct furca_view field;

			if (k == 1)
				(void)furca_buf_append_text(&line, "furca-fn ");
			if (furca_map_text(item.raw, "name", &field))
				(void)furca_buf_append(&line, field.at, furca_view_size(field));
			if (furca_map_text(item.raw, k == 0 ? "effect" : "language", &field))
				(void)furca_buf_printf(&line, "\t%.*s", (int)furca_view_size(field),
						       (const char *)field.at);
			if (furca_map_text(item.raw, "doc", &field))
				(void)furca_buf_printf(&line, "\t%.*s", (int)furca_view_size(field),
						       (const char *)field.at);
			r |= print_bytes(line.data ? line.data : (const uint8_t *)"", line.len);
		}
	}
	return r;
}

static int give(const struct words *words, const struct furca_value *value)
{
	FURCA_AUTO_BUF struct furca_buf json = FURCA_BUF_INIT;
	struct furca_view text = value->bytes;

	if (words->list)
		return print_list(value);
	if (value->kind == FURCA_EXT && value->ext == FURCA_EXT_HANDLE)
		return words->variable ? assign(words->variable, text.at, furca_view_size(text))
				       : print_bytes(text.at, furca_view_size(text));
	if (value->kind != FURCA_STR && value->kind != FURCA_BIN) {
		furca_json_write(&json, value);
		if (json.failed) {
			builtin_error("%s: no memory for the answer", words->name);
			return EXECUTION_FAILURE;
		}
		text = furca_buf_view(&json);
	}
	if (words->variable)
		return assign(words->variable, text.at, furca_view_size(text));
	return print_bytes(text.at, furca_view_size(text));
}

/* The message of FAILED, as `NAME: TYPE: message`. */
static void complain(const char *name, struct furca_view body)
{
	struct furca_view type = {NULL, NULL}, message = {NULL, NULL}, suggestion = {NULL, NULL};

	(void)furca_map_text(body, "type", &type);
	(void)furca_map_text(body, "message", &message);
	(void)furca_map_text(body, "suggestion", &suggestion);
	builtin_error("%s: %.*s%s%.*s%s%.*s", name, (int)furca_view_size(type), (const char *)type.at,
		      furca_view_size(type) ? ": " : "", (int)furca_view_size(message), (const char *)message.at,
		      furca_view_size(suggestion) ? "\n" : "", (int)furca_view_size(suggestion),
		      (const char *)suggestion.at);
}

static int exchange(const struct words *words, struct furca_buf *out, struct furca_err *err)
{
	FURCA_AUTO_FD struct furca_fd lane = FURCA_FD_NONE;
	FURCA_AUTO_BUF struct furca_buf in = FURCA_BUF_INIT;
	struct furca_fd fds[FURCA_FDS_MAX];
	struct furca_frame_view answer;
	struct furca_value value;
	size_t n_fds;
	int r;

	r = furca_host_open_lane(&furca_bash.host, FURCA_LANE_OPEN, -1, &lane, err);
	if (r < 0)
		return r;
	r = furca_frame_send(lane.n, out->data, out->len, NULL, 0);
	if (r < 0)
		return furca_fail(err, FURCA_E_GONE, -r, "the engine does not take the call");
	furca_buf_done(out);
	if (words->release)
		return EXECUTION_SUCCESS;
	r = wait_answer(&lane, &in);
	if (r == 0)
		r = furca_frame_recv(lane.n, &in, ANSWER_MAX, &answer, fds, &n_fds, err);
	if (r <= 0)
		return furca_fail(err, FURCA_E_GONE, r < 0 ? -r : EPIPE, "the engine closed the call");
	furca_fds_done(fds, n_fds);
	if (answer.number == FURCA_LANE_FAILED) {
		complain(words->name ? words->name : "list", answer.body);
		return EXECUTION_FAILURE;
	}
	if (answer.number != FURCA_LANE_VALUE)
		return furca_fail(err, FURCA_E_PROTOCOL, 0, "the engine answered with frame %d", (int)answer.number);
	if (!furca_map_get(answer.body, "value", &value)) {
		static const uint8_t nil[] = {0xc0};

		(void)furca_value_of((struct furca_view){nil, nil + 1}, &value);
	}
	/* What an attribute is told by, {value} or {method: true}, is not for people. */
	if (words->read && !furca_map_get(value.raw, "value", &value))
		return furca_fail(err, FURCA_E_VALIDATION, 0, "that is a method: call it, without -a");
	return give(words, &value);
}

static int call(WORD_LIST *list, enum furca_frame frame)
{
	FURCA_AUTO(words_done) struct words words = {0};
	FURCA_AUTO_BUF struct furca_buf out = FURCA_BUF_INIT;
	struct furca_err err = FURCA_ERR_INIT;
	int r = read_words(list, &words, &err);

	if (r == EX_USAGE) {
		builtin_usage();
		return EX_USAGE;
	}
	if (words.list)
		frame = FURCA_LANE_DESCRIBE;
	if (words.release)
		frame = FURCA_LANE_RELEASE;
	if (r == 0)
		r = pack_call(&out, frame, &words, &err);
	words_done(&words); /* exchange may leave by a jump */
	words.args = words.kwargs = FURCA_BUF_INIT;
	if (r == 0)
		r = exchange(&words, &out, &err);
	if (r >= 0)
		return r;
	builtin_error("%s%s%s", words.name ? words.name : "", words.name ? ": " : "", err.text);
	return EXECUTION_FAILURE;
}

static int capability_builtin(WORD_LIST *list)
{
	return call(list, FURCA_LANE_CAPABILITY);
}

static int function_builtin(WORD_LIST *list)
{
	return call(list, FURCA_LANE_FUNCTION);
}

/* After `exec >file` and the like: back to where this call's output is read. */
static int reset_builtin(WORD_LIST *list)
{
	struct furca_output *output = &furca_bash.host.output;
	int null;

	if (list) {
		builtin_usage();
		return EX_USAGE;
	}
	(void)fflush(stdout);
	output->changed = true;
	for (int fd = 1; fd < 3; fd++) {
		int from = output->keeps ? output->kept[fd - 1] : furca_bash.saved[fd];

		if (from >= 0 && dup2(from, fd) < 0) {
			builtin_error("%s", strerror(errno));
			return EXECUTION_FAILURE;
		}
	}
	clearerr(stdout);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null > 0) {
		(void)dup2(null, 0);
		(void)close(null);
	} else if (null == 0) {
		(void)furca_fd_cloexec(0, 0);
	}
	return EXECUTION_SUCCESS;
}

static char *const capability_doc[] = {
	(char *)"Call a capability that the agent offers.",
	(char *)"",
	(char *)"Words are positional arguments, key=text and key:=json named ones, :=json a positional value that is no text;",
	(char *)"behind -- every word is positional text. Prints the answer, text as it is and anything else as JSON, or",
	(char *)"assigns it to VAR with -v. With -l, lists what may be called.",
	(char *)"",
	(char *)"An object that stays with the agent is answered as a handle, @DIGITS: HANDLE.METHOD calls it, -a HANDLE.NAME reads an",
	(char *)"attribute, NAME:='{\"handle\": \"HANDLE\"}' passes it on, -r HANDLE gives it back (so does the end of the session).",
	(char *)"",
	(char *)"Exit status is 0 unless the call fails; the message then goes to stderr.",
	NULL,
};
static char *const function_doc[] = {
	(char *)"Call a stored function.",
	(char *)"",
	(char *)"Arguments and answer are as with `capability'.",
	NULL,
};

static char *const reset_doc[] = {
	(char *)"Put stdin, stdout and stderr back.",
	(char *)"",
	(char *)"An `exec' redirection lasts for the session; this undoes it: output is read by the caller again, stdin is empty.",
	NULL,
};

EXPORT struct builtin capability_struct = {
	(char *)"capability",
	capability_builtin,
	BUILTIN_ENABLED,
	capability_doc,
	"capability [-a] [-v VAR] NAME [WORD | KEY=TEXT | KEY:=JSON ...] or capability -l or capability -r HANDLE",
	NULL,
};

/* bash looks the structure up by the builtin's name, which is no C name. */
EXPORT struct builtin furca_fn_struct __asm__("\"furca-fn_struct\"") = {
	(char *)"furca-fn",
	function_builtin,
	BUILTIN_ENABLED,
	function_doc,
	"furca-fn [-v VAR] NAME [WORD | KEY=TEXT | KEY:=JSON ...]",
	NULL,
};

EXPORT struct builtin furca_reset_struct __asm__("\"furca-reset_struct\"") = {
	(char *)"furca-reset", reset_builtin, BUILTIN_ENABLED, reset_doc, "furca-reset", NULL,
};
