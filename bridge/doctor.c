/* `furca doctor`: what this machine offers, and which guarantee each feature carries. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/auto.h"
#include "base/err.h"
#include "bridge/cli.h"
#include "snapshot/probe.h"

#include "base/banned.h"

static const struct {
	unsigned bit;
	const char *word;
	bool required;
	const char *what;
} barriers[] = {
#define BARRIER(name, bit_, word_, required_, what_) {bit_, word_, required_, what_},
#include "snapshot/barrier.def"
#undef BARRIER
};

static bool holds(const struct furca_probe *probe, size_t i)
{
	return probe->barriers >> barriers[i].bit & 1;
}

static bool all_required(const struct furca_probe *probe)
{
	bool all = true;

	for (size_t i = 0; i < FURCA_COUNT(barriers); i++)
		all = all && (holds(probe, i) || !barriers[i].required);
	return all;
}

static void print_json(const struct furca_probe *probe)
{
	json_t *features = json_array(), *guarantees = json_object();

	for (int i = 0; i < probe->rows; i++) {
		const struct furca_probe_row *row = &probe->row[i];

		(void)json_array_append_new(features, json_pack("{s:s, s:s, s:b, s:s, s:s}", "feature", row->feature,
								"guarantee", row->guarantee, "there", row->there,
								"lost", row->lost, "detail", row->detail));
	}
	for (size_t i = 0; i < FURCA_COUNT(barriers); i++)
		(void)json_object_set_new(guarantees, barriers[i].word,
					  json_pack("{s:b, s:b, s:s}", "held", holds(probe, i), "required",
						    barriers[i].required, "what", barriers[i].what));
	json_t *all =
		json_pack("{s:b, s:b, s:b, s:o, s:o}", "ok", all_required(probe), "root", probe->root,
			  "user_namespaces", probe->user_namespaces, "guarantees", guarantees, "features", features);
	(void)json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	(void)printf("\n");
	json_decref(all);
}

static void print_guarantees(const struct furca_probe *probe)
{
	static const char *const heads[] = {"GUARANTEE", "HERE", "NEEDED", "WHAT A READ-ONLY CALL CANNOT TOUCH"};
	struct furca_table table;

	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	for (size_t i = 0; i < FURCA_COUNT(barriers); i++) {
		furca_table_add_text(&table, barriers[i].word);
		furca_table_add_text(&table, holds(probe, i) ? "yes" : "no");
		furca_table_add_text(&table, barriers[i].required ? "yes" : "");
		furca_table_add_text(&table, barriers[i].what);
	}
	furca_table_print(&table, stdout);
	furca_table_done(&table);
}

static void print_features(const struct furca_probe *probe)
{
	static const char *const heads[] = {"FEATURE", "HERE", "CARRIES", "DETAIL"};
	struct furca_table table;
	bool missing = false;

	furca_table_begin(&table, FURCA_COUNT(heads), heads);
	for (int i = 0; i < probe->rows; i++) {
		const struct furca_probe_row *row = &probe->row[i];

		furca_table_add_text(&table, row->feature);
		furca_table_add_text(&table, row->there ? "yes" : "no");
		furca_table_add_text(&table, row->guarantee);
		furca_table_add_text(&table, row->detail);
		missing = missing || !row->there;
	}
	(void)printf("\n");
	furca_table_print(&table, stdout);
	furca_table_done(&table);
	if (missing)
		(void)printf("\n");
	for (int i = 0; i < probe->rows; i++)
		if (!probe->row[i].there)
			(void)printf("Without %s: %s\n", probe->row[i].feature, probe->row[i].lost);
}

int furca_cmd_doctor(int argc, char **argv)
{
	const struct furca_probe *probe;
	struct furca_err err = FURCA_ERR_INIT;
	struct furca_cli cli;
	int status = furca_cli_options(argc, argv, "doctor", NULL, &cli);

	if (status >= 0)
		return status;
	if (cli.argc > 0)
		return furca_cli_usage("doctor", "'%s' is not expected", cli.argv[0]);
	if (furca_probe(&probe, &err) < 0)
		return furca_cli_fail_err("doctor", &err);
	if (cli.json) {
		print_json(probe);
	} else {
		print_guarantees(probe);
		print_features(probe);
		(void)printf(
			"\n%s\n",
			all_required(probe)
				? "Every guarantee that a read-only call needs can be had here."
				: "Read-only calls are refused here unless they waive what is missing: see `isolation`.");
	}
	return all_required(probe) ? FURCA_EXIT_OK : FURCA_EXIT_FAILED;
}
