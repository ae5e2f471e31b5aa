/*
 * What a call wrote to one stream: the first and the last bytes in memory, all of it in an unlinked file once it is more than that.
 * Bytes are bytes; text is made of them at the end, with U+FFFD for what is no UTF-8.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fd.h"

struct furca_output {
	uint64_t total; /* bytes that came */
	size_t max;	/* bytes kept in memory, not 0 */
	size_t shown;	/* bytes of its text */
	struct furca_buf head;
	uint8_t *tail; /* ring of max / 2 bytes, once there is more than max */
	size_t tail_at, tail_size;
	const char *dir; /* borrowed: where the file is made; NULL: none is made */
	struct furca_fd spill;
	uint64_t spilled; /* bytes in the file, from the first on */
	uint64_t max_spill;
	bool spill_failed;
	uint8_t *map; /* of the file, when sealed */
};

/* Starts empty. `max` bytes are kept in memory; more goes to a file in `dir`, at most `max_spill` bytes. */
void furca_output_init(struct furca_output *output, size_t max, const char *dir, uint64_t max_spill);
void furca_output_done(struct furca_output *output);

/* Adds bytes. May write to the file; what cannot be kept is counted and forgotten. */
void furca_output_add(struct furca_output *output, const uint8_t *data, size_t n);

/* Appends the text to `out`: head and tail, cut between characters. Returns the bytes left out between them. */
uint64_t furca_output_text(const struct furca_output *output, struct furca_buf *out);

/*
 * No more comes: the file is mapped and its descriptor closed, so that keeping it for read_output costs no descriptor.
 */
void furca_output_seal(struct furca_output *output);

/* Bytes of memory it holds (not counting the file). */
size_t furca_output_memory(const struct furca_output *output);

/*
 * Appends the bytes at `offset`, at most `length`, to `out`; fewer at the end or where bytes were not kept. Returns how many.
 */
size_t furca_output_read(const struct furca_output *output, uint64_t offset, size_t length, struct furca_buf *out);

/* Appends bytes as UTF-8, U+FFFD for each longest part that is none. */
void furca_utf8_lossy(struct furca_buf *out, const uint8_t *data, size_t n);

/* How many of the bytes can be shown already: all, but for a character at the end that is not whole yet. */
size_t furca_utf8_whole(const uint8_t *data, size_t n);
