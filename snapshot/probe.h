/*
 * What this kernel and its policy allow, each tried for real in a child, once: the rows of `furca doctor`. Each row names the
 * guarantee it carries and what is lost without it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct furca_probe_row {
	const char *feature;   /* "overlayfs", "clone3 set_tid", … */
	const char *guarantee; /* word of barrier.def, or "speed" */
	const char *lost;      /* what is missing without it, one sentence */
	bool there;
	char detail[96]; /* version, errno text, or the fallback in force */
};

struct furca_probe {
	unsigned barriers;	    /* bits of enum furca_barrier that this machine can hold for a copy */
	bool root, user_namespaces; /* how cells are made */
	int rows;
	struct furca_probe_row row[40];
};

/* Probes; takes some milliseconds, forks. The result is kept for the life of the process. 0 or -errno. */
int furca_probe(const struct furca_probe **ret, struct furca_err *err);
