#include "bridge/cli_show.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bridge/cli.h"
#include "bridge/json.h"

#include "base/banned.h"

#define TABLE "application/vnd.furca.table+json"

enum {
	INLINE_MAX = 8 << 20, /* bytes of an image that is sent to a terminal; larger ones go to a file */
	KITTY_CHUNK = 4096,   /* bytes of base64 in one sequence */
};

static const struct {
	const char *mime, *suffix;
} kinds[] = {{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/svg+xml", ".svg"}};

/* ------------------------------------------------------------------------------------------------------- the terminal */

bool furca_cli_images(const char *word, enum furca_images *ret)
{
	static const char *const words[] = {
		[FURCA_IMAGES_AUTO] = "auto",
		[FURCA_IMAGES_PATH] = "path",
		[FURCA_IMAGES_KITTY] = "kitty",
		[FURCA_IMAGES_ITERM] = "iterm",
	};

	for (size_t i = 0; i < FURCA_COUNT(words); i++)
		if (strcmp(word, words[i]) == 0) {
			*ret = (enum furca_images)i;
			return true;
		}
	return false;
}

enum furca_images furca_cli_images_default(void)
{
	const char *word = getenv("FURCA_IMAGES");
	enum furca_images how = FURCA_IMAGES_AUTO;

	(void)(word && furca_cli_images(word, &how));
	return how;
}

/* What the terminal says of itself; the first that applies. tmux and screen do not pass images on, whatever is around them. */
static enum furca_images detect(void)
{
	static const struct {
		const char *variable, *value; /* NULL: any */
		enum furca_images how;
	} signs[] = {
		{"TMUX", NULL, FURCA_IMAGES_PATH},
		{"STY", NULL, FURCA_IMAGES_PATH},
		{"TERM", "dumb", FURCA_IMAGES_PATH},
		{"TERM_PROGRAM", "iTerm.app", FURCA_IMAGES_ITERM},
		{"TERM_PROGRAM", "WezTerm", FURCA_IMAGES_ITERM},
		{"LC_TERMINAL", "iTerm2", FURCA_IMAGES_ITERM},
		{"TERM_PROGRAM", "ghostty", FURCA_IMAGES_KITTY},
		{"TERM", "xterm-ghostty", FURCA_IMAGES_KITTY},
		{"TERM", "xterm-kitty", FURCA_IMAGES_KITTY},
		{"KITTY_WINDOW_ID", NULL, FURCA_IMAGES_KITTY},
	};

	for (size_t i = 0; i < FURCA_COUNT(signs); i++) {
		const char *is = getenv(signs[i].variable);

		if (is && *is && (!signs[i].value || strcmp(is, signs[i].value) == 0))
			return signs[i].how;
	}
	return FURCA_IMAGES_PATH;
}

/* --------------------------------------------------------------------------------------------------------------- images */

/* The width in pixels that a PNG's first chunk tells; 0 where it is no PNG. */
static uint32_t png_width(struct furca_view data)
{
	static const uint8_t begin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
	const uint8_t *at = data.at + sizeof(begin);

	if (furca_view_size(data) < sizeof(begin) + 8 || memcmp(data.at, begin, sizeof(begin)) != 0)
		return 0;
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The kitty graphics protocol: PNG only. What is wider than the window is scaled to it, which the terminal does not do by itself. */
static bool show_kitty(struct furca_view data)
{
	FURCA_AUTO_BUF struct furca_buf text = {.max = 2 * INLINE_MAX};
	struct winsize size = {0};
	uint32_t wide = png_width(data);

	if (wide == 0 || furca_base64(&text, data.at, furca_view_size(data)) < 0)
		return false;
	(void)ioctl(1, TIOCGWINSZ, &size);
	(void)fputs("\033_Gf=100,a=T,q=2,", stdout);
	if (size.ws_xpixel > 0 && wide > size.ws_xpixel)
		(void)printf("c=%u,", size.ws_col);
	for (size_t at = 0; at < text.len; at += KITTY_CHUNK) {
		size_t n = FURCA_MIN(text.len - at, (size_t)KITTY_CHUNK);

		(void)printf("%sm=%d;%.*s\033\\", at > 0 ? "\033_G" : "", at + n < text.len, (int)n,
			     (const char *)text.data + at);
	}
	(void)fputc('\n', stdout);
	return true;
}

/* The inline images of iTerm2, which takes what its system can show, and scales it to its window. */
static bool show_iterm(const char *mime, struct furca_view data)
{
	FURCA_AUTO_BUF struct furca_buf text = {.max = 2 * INLINE_MAX};

	if (strcmp(mime, "image/svg+xml") == 0 || furca_base64(&text, data.at, furca_view_size(data)) < 0)
		return false;
	(void)printf("\033]1337;File=inline=1;size=%zu:%.*s\a\n", furca_view_size(data), (int)text.len,
		     (const char *)text.data);
	return true;
}

/* Writes an image to a file of its own and says where. */
static void show_path(const char *mime, const char *suffix, struct furca_view data)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/furca-XXXXXX%s", dir && *dir == '/' ? dir : "/tmp", suffix);
	bool fits = n > 0 && (size_t)n < sizeof(path);
	FURCA_AUTO_FD struct furca_fd fd = furca_fd_own(fits ? mkostemps(path, (int)strlen(suffix), O_CLOEXEC) : -1);

	if (fd.n >= 0 && furca_fd_write_all(fd.n, data.at, furca_view_size(data)) == 0)
		(void)printf("[%s, %zu bytes: %s]\n", mime, furca_view_size(data), path);
	else
		(void)printf("[%s, %zu bytes, which no file in %s could take]\n", mime, furca_view_size(data),
			     dir && *dir == '/' ? dir : "/tmp");
}

static void show_image(const char *mime, const char *suffix, struct furca_view data, enum furca_images how)
{
	bool shown = false;

	if (!isatty(1) || furca_view_size(data) > INLINE_MAX)
		how = FURCA_IMAGES_PATH;
	else if (how == FURCA_IMAGES_AUTO)
		how = detect();
	if (how == FURCA_IMAGES_KITTY)
		shown = show_kitty(data);
	else if (how == FURCA_IMAGES_ITERM)
		shown = show_iterm(mime, data);
	if (!shown)
		show_path(mime, suffix, data);
}

/* ------------------------------------------------------------------------------------------------------------ displays */

/* The best form for a terminal: an image, a table, plain text. Returns whether it was a table without text: the call's value. */
static bool show_display(struct furca_view item, enum furca_images how)
{
	struct furca_value v;
	struct furca_view text;

	for (size_t i = 0; i < FURCA_COUNT(kinds); i++)
		if (furca_map_get(item, kinds[i].mime, &v) && (v.kind == FURCA_BIN || v.kind == FURCA_STR)) {
			show_image(kinds[i].mime, kinds[i].suffix, v.bytes, how);
			return false;
		}
	bool has_text = furca_map_text(item, "text/plain", &text);
	if (isatty(1) && furca_map_get(item, TABLE, &v) && furca_cli_print_frame(v.raw, stdout))
		return !has_text;
	if (has_text)
		(void)printf("%.*s\n", (int)furca_view_size(text), (const char *)text.at);
	return false;
}

static bool displays(struct furca_view map, struct furca_value *ret)
{
	return furca_map_get(map, "display", ret) && ret->kind == FURCA_ARRAY && ret->count > 0;
}

bool furca_cli_displays(struct furca_view map)
{
	struct furca_value list;

	return displays(map, &list);
}

bool furca_cli_show_displays(struct furca_view map, enum furca_images how)
{
	struct furca_value list, item;
	bool value = false;

	if (!displays(map, &list))
		return false;
	struct furca_view inside = furca_value_inside(&list);
	while (furca_value_next(&inside, &item) == 0)
		value = show_display(item.raw, how) || value;
	(void)fflush(stdout);
	return value;
}
