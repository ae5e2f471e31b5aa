/* What was written below the overlays of a cell: the upper layers compared with those below. For a cell's init. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "snapshot/overlay.h"

enum furca_change { FURCA_CHANGE_ADDED, FURCA_CHANGE_MODIFIED, FURCA_CHANGE_DELETED };

/* `path` is absolute as seen in the cell, borrowed. */
typedef void furca_change_fn(void *data, enum furca_change change, const char *path);

/*
 * Calls `fn` for the first `max` changes and returns how many there are in all. A file that was only opened for writing is no change: content and
 * attributes are compared where size and times are the same. A directory counts where it is new, gone, or has another owner, mode or attribute. Renames
 * are one deletion and one addition. What a deleted directory held is counted by the directory alone. Contents are compared for two seconds altogether, then a
 * file counts without that. Blocks on the file systems. Not for two threads at once.
 */
uint64_t furca_changes_list(const struct furca_overlay *overlay, uint64_t max, furca_change_fn *fn, void *data);
