/*
 * Where an ordinary user can write: needed for overlays in a user namespace, where directories of others on the way to such a
 * place have to be made in the upper layer beforehand (see overlay.c).
 */
#pragma once

/*
 * The working directory, the home directory, the usual temporary ones, and every directory of the user that lies below up to
 * four directories of others (looked for once; bounded). NULL-terminated absolute paths, kept for the process's life; never NULL.
 */
const char *const *furca_places(const char *cwd);
