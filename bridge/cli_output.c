/* `furca output`: what a call wrote, page by page, after it has ended. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "bridge/cli.h"

#include "base/banned.h"

#define PAGE (1 << 20) /* bytes asked for at once */

struct wanted {
	int64_t id, offset, length; /* length -1: to the end */
	const char *stream;
};

/* A number of bytes that an option was given; without one *ret stays. -1 to go on, or an exit status. */
static int take_bytes(const char *option, const char *text, int64_t *ret)
{
	if (text && !furca_cli_number(text, ret))
		return furca_cli_usage("output", "--%s wants a number of bytes, not '%s'", option, text);
	return -1;
}

/* Asks for one page and prints it. *ret_end: nothing is behind it. An exit status. */
static int page(const struct furca_cli *cli, struct wanted *w, bool *ret_end)
{
	FURCA_AUTO_ARGS struct furca_args args = {0};
	FURCA_AUTO_FREE void *answer = NULL;
	struct furca_view view;
	struct furca_value data;
	bool shown;

	furca_args_begin(&args);
	furca_args_int(&args, "output_id", w->id);
	furca_args_text(&args, "stream", w->stream);
	furca_args_int(&args, "offset", w->offset);
	furca_args_int(&args, "length", w->length >= 0 ? FURCA_MIN(w->length, PAGE) : PAGE);
	int status = furca_cli_call(cli, "read_output", &args, &answer, &view, &shown);
	*ret_end = true;
	if (status != FURCA_EXIT_OK || shown)
		return status;
	(void)furca_map_bool(view, "end", ret_end);
	if (!furca_map_get(view, "data", &data) || data.kind != FURCA_BIN)
		return furca_cli_fail("output", "the engine answered without bytes", NULL);
	int64_t n = (int64_t)furca_view_size(data.bytes);
	if (n > 0 && furca_fd_write_all(1, data.bytes.at, (size_t)n) < 0)
		return furca_cli_fail("output", "standard output takes no more", NULL);
	w->offset += n;
	w->length -= w->length > 0 ? n : 0;
	if (n == 0 && !*ret_end)
		return furca_cli_fail("output", "the rest was not kept",
				      "Run the call again with its output in a file.");
	*ret_end = *ret_end || w->length == 0;
	return FURCA_EXIT_OK;
}

int furca_cmd_output(int argc, char **argv)
{
	struct wanted w = {.length = -1};
	const char *offset = NULL, *length = NULL;
	struct furca_cli cli;
	bool end = false, errors = false;
	const struct furca_cli_own own[] = {{.name = "stderr", .given = &errors},
					    {.name = "offset", .value = &offset},
					    {.name = "length", .value = &length},
					    {0}};
	int status = furca_cli_options(argc, argv, "output", own, &cli);

	if (status >= 0 || (status = take_bytes("offset", offset, &w.offset)) >= 0 ||
	    (status = take_bytes("length", length, &w.length)) >= 0)
		return status;
	w.stream = errors ? "stderr" : "stdout";
	if (cli.argc != 1 || !furca_cli_number(cli.argv[0], &w.id) || w.id < 1)
		return furca_cli_usage("output", "say which output, by the number that `furca exec` told");
	status = FURCA_EXIT_OK;
	while (status == FURCA_EXIT_OK && !end)
		status = page(&cli, &w, &end);
	return status;
}
