/* Calls of an engine, for the benchmarks that measure through the client library. */
#pragma once

#include <stddef.h>

#include "include/furca.h"

/* Runs code; what goes wrong is said on standard error with the program's name. 0, or -EIO where there is no answer or it is not ok. */
int furca_bench_execute(struct furca_client *client, const struct furca_execute *args);

/* Code that binds `data` to a dict of about that many megabytes: 210 bytes an entry, a list of two floats and its place. */
void furca_bench_dict(char *ret, size_t size, long megabytes);

/* A private engine with that text as its configuration file. 0 or -errno with *err; ended by furca_close. */
int furca_bench_open(const char *config, struct furca_client **ret, struct furca_error *err);
