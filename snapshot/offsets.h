/*
 * The positions of open files at the time of a snapshot. A snapshot keeps the session's own descriptions, whose positions move
 * with the session; when it takes the session's place they go back to where they were at the commit.
 */
#pragma once

/* Notes position and status flags of every regular file's descriptor. Raw calls only. 0 or -errno (-E2BIG: over 4096). */
int furca_offsets_note(void);

/* Puts them back, once. Raw calls only. */
void furca_offsets_restore(void);
