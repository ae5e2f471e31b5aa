/*
 * The file system that holds all upper layers of a cell, seen as one: whether anything in it is other than when the cell was built, told without listing
 * it. What is written must change a directory that was there from the start, so their times say it: the upper layers' tops, those made beforehand, and
 * those of the root that were rebuilt by hand (overlay.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fd.h"

/* The names of those directories relative to the top of the file system, each with its NUL behind it. */
struct furca_upper {
	struct furca_fd top; /* O_PATH will do */
	struct furca_buf directories;
};

/* An entry of a directory that was rebuilt by hand, as it was then. */
struct furca_upper_entry {
	char name[256];
	struct stat st;
};

/* Notes the directory `path`, relative to the top, and all below it. 0 or -errno. */
int furca_upper_note_tree(struct furca_upper *upper, const char *path);

/* Notes the directory alone. 0 or -errno. */
int furca_upper_note(struct furca_upper *upper, const char *path);

/* Appends what the directory holds now, as an array of struct furca_upper_entry. 0 or -errno. */
int furca_upper_entries(int dir, struct furca_buf *ret);

/* A number that changes with whatever is written. 0: the kernel does not tell, and nothing is known. A few system calls, does not block. */
uint64_t furca_upper_mark(const struct furca_upper *upper);

void furca_upper_done(struct furca_upper *upper);
