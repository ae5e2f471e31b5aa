/*
 * What a call displayed, shown to a person: images in the terminal or by their file, frames as tables, the rest as text. Writes to
 * standard output. What code displays is not trusted: nothing of it reaches the terminal as a control sequence, but by text that
 * it might as well have printed.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "bridge/wire/value.h"

/* How images are shown. Where standard output is no terminal, and for what a protocol cannot carry, always by path. */
enum furca_images {
	FURCA_IMAGES_AUTO, /* as the terminal can, which its variables tell */
	FURCA_IMAGES_PATH, /* in a file, whose path is printed */
	FURCA_IMAGES_KITTY,
	FURCA_IMAGES_ITERM,
};

#define FURCA_IMAGES_WORDS "auto, path, kitty or iterm"

/* One of the words above. False where it is none of them. */
bool furca_cli_images(const char *word, enum furca_images *ret);

/* The choice of $FURCA_IMAGES; auto where it is not set or says nothing known. */
enum furca_images furca_cli_images_default(void);

/* Whether the result map `map` displayed anything. */
bool furca_cli_displays(struct furca_view map);

/* Shows what the result map `map` displayed, in order. True where the value of the call was among it as a table, which stands for its text. */
bool furca_cli_show_displays(struct furca_view map, enum furca_images how);

/*
 * Prints a frame, a value of the type application/vnd.furca.table+json (doc/protocol.md), as an aligned table in the width of the terminal that `out` is:
 * columns, and what of a text is beyond 40 columns, are left out where a "…" stands. False, with nothing printed, where the value is not of that form.
 */
bool furca_cli_print_frame(struct furca_view frame, FILE *out);
