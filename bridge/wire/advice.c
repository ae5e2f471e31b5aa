#include "bridge/wire/advice.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "bridge/wire/nearest.h"

#include "base/banned.h"

#define MAX_CHARACTERS 48

const char *furca_advice_text(char buf[FURCA_ADVICE_TEXT], struct furca_view text)
{
	bool utf8 = furca_view_is_utf8(text), plain = utf8 && !memchr(text.at, '\'', furca_view_size(text)) &&
						      !memchr(text.at, '\\', furca_view_size(text));
	char quote = plain ? '\'' : '"';
	size_t n = 0, characters = 0;

	buf[n++] = quote;
	for (const uint8_t *p = text.at; p < text.end && n + 12 < FURCA_ADVICE_TEXT; p++) {
		if ((*p & 0xc0) != 0x80 && ++characters > MAX_CHARACTERS)
			break;
		if (*p < 0x20 || *p == 0x7f || (!utf8 && *p >= 0x80)) {
			buf[n++] = '?';
			continue;
		}
		if (!plain && (*p == '"' || *p == '\\'))
			buf[n++] = '\\';
		buf[n++] = (char)*p;
	}
	buf[n++] = quote;
	buf[n] = '\0';
	return buf;
}

int furca_refuse_unknown(struct furca_err *err, const char *what, struct furca_view key, const char *const *known,
			 size_t n, struct furca_view map)
{
	char advice[FURCA_ERR_TEXT_MAX], word[FURCA_ADVICE_TEXT];
	const char *near = n ? furca_nearest((const char *)key.at, furca_view_size(key), known, n) : NULL;
	struct furca_value there;

	(void)furca_advice_text(word, key);
	if (!near)
		(void)snprintf(advice, sizeof(advice), "Remove %s; no %s is taken here.", word, what);
	else if (furca_map_get(map, near, &there))
		(void)snprintf(advice, sizeof(advice), "Remove %s; the nearest known one is '%s', which is given.",
			       word, near);
	else
		(void)snprintf(advice, sizeof(advice), "Rename %s to '%s' (did you mean that?), or remove %s.", word,
			       near, word);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "Unknown %s '%.*s'.", what,
				  (int)FURCA_MIN(furca_view_size(key), 64), (const char *)key.at);
}

int furca_refuse_value(struct furca_err *err, const char *key, const char *what)
{
	char advice[FURCA_ERR_TEXT_MAX];

	(void)snprintf(advice, sizeof(advice), "Remove %s, or make it %s.", key, what);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "The argument '%s' must be %s.", key, what);
}

int furca_refuse_needed(struct furca_err *err, const char *key, const char *what, const char *example)
{
	char advice[FURCA_ERR_TEXT_MAX];

	(void)snprintf(advice, sizeof(advice), "Give %s, for example %s=%s.", key, key, example);
	if (!what)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "The argument '%s' is missing.", key);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "The argument '%s' must be %s.", key, what);
}

int furca_refuse_word(struct furca_err *err, const char *key, const struct furca_value *given, const char *const *words,
		      size_t n, bool needed)
{
	bool text = given && given->kind == FURCA_STR;
	const char *near =
		text ? furca_nearest((const char *)given->bytes.at, furca_view_size(given->bytes), words, n) : words[0];
	char advice[FURCA_ERR_TEXT_MAX], list[128] = "";

	(void)snprintf(list, sizeof(list), "'%s'", near);
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(list);
		if (words[i] != near)
			(void)snprintf(list + len, sizeof(list) - len, " or '%s'", words[i]);
	}
	/* A near word is what was meant; where there is none, nothing is. */
	if (text || needed)
		(void)snprintf(advice, sizeof(advice), "Use %s=%s%s.", key, list, needed ? "" : ", or leave it out");
	else
		(void)snprintf(advice, sizeof(advice), "Remove %s, or use %s=%s.", key, key, list);
	if (!given || given->kind == FURCA_NIL)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "The argument '%s' is missing.", key);
	if (!text)
		return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "The argument '%s' must be one of %s.",
					  key, list);
	return furca_fail_suggest(err, FURCA_E_VALIDATION, 0, advice, "Unknown %s '%.*s'.", key,
				  (int)FURCA_MIN(furca_view_size(given->bytes), 64), (const char *)given->bytes.at);
}
