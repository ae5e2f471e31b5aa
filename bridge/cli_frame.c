/* A frame as a table in the terminal's width. */
#include <string.h>

#include "base/auto.h"
#include "bridge/cli.h"
#include "bridge/cli_show.h"

#include "base/banned.h"

enum {
	COLUMNS_MAX = 64, /* more than a frame is delivered with */
	ROWS_MAX = 64,
	CELL_MAX = 40, /* columns of the terminal for one of the frame */
	APART = 2,     /* spaces between columns */
};

struct frame {
	size_t columns, labels, rows; /* as delivered; rows without the heads */
	uint64_t shape[2], head[2];   /* rows and columns of all, and how many stand before those left out */
	size_t left, right;	      /* columns shown, from either side */
	bool right_aligned[COLUMNS_MAX];
	size_t wide[COLUMNS_MAX];
	struct furca_table cells; /* the heads, then row by row */
};

static bool read_pair(struct furca_view map, const char *key, uint64_t pair[2])
{
	struct furca_value list, n;

	if (!furca_map_get(map, key, &list) || list.kind != FURCA_ARRAY || list.count != 2)
		return false;
	struct furca_view inside = furca_value_inside(&list);
	for (int i = 0; i < 2; i++) {
		if (furca_value_next(&inside, &n) < 0 || n.kind != FURCA_UINT)
			return false;
		pair[i] = n.u;
	}
	return true;
}

static bool read_heads(struct frame *f, struct furca_view map)
{
	struct furca_value list, head;
	struct furca_view name, align;

	if (!furca_map_get(map, "columns", &list) || list.kind != FURCA_ARRAY || list.count == 0 ||
	    list.count > COLUMNS_MAX)
		return false;
	f->columns = f->cells.columns = list.count;
	struct furca_view inside = furca_value_inside(&list);
	for (size_t c = 0; c < f->columns; c++) {
		if (furca_value_next(&inside, &head) < 0 || head.kind != FURCA_MAP ||
		    !furca_map_text(head.raw, "name", &name))
			return false;
		f->right_aligned[c] = furca_map_text(head.raw, "align", &align) && furca_view_is(align, "right");
		furca_table_add(&f->cells, (const char *)name.at, furca_view_size(name));
	}
	return true;
}

static bool read_rows(struct frame *f, struct furca_view map)
{
	struct furca_value list, row, cell;

	if (!furca_map_get(map, "rows", &list) || list.kind != FURCA_ARRAY || list.count > ROWS_MAX)
		return false;
	f->rows = list.count;
	struct furca_view inside = furca_value_inside(&list);
	for (size_t r = 0; r < f->rows; r++) {
		if (furca_value_next(&inside, &row) < 0 || row.kind != FURCA_ARRAY || row.count != f->columns)
			return false;
		struct furca_view cells = furca_value_inside(&row);
		for (size_t c = 0; c < f->columns; c++) {
			if (furca_value_next(&cells, &cell) < 0 || cell.kind != FURCA_STR)
				return false;
			furca_table_add(&f->cells, (const char *)cell.bytes.at, furca_view_size(cell.bytes));
		}
	}
	return f->cells.rows == (f->rows + 1) * f->columns; /* less where memory is out */
}

static bool read_frame(struct frame *f, struct furca_view map)
{
	uint64_t labels;

	if (!read_pair(map, "shape", f->shape) || !read_pair(map, "head", f->head) ||
	    !furca_map_uint(map, "labels", &labels) || !read_heads(f, map) || !read_rows(f, map) || labels > f->columns)
		return false;
	f->labels = labels;
	return true;
}

/* Whether columns, or rows, are left out of what is printed. */
static bool columns_left_out(const struct frame *f)
{
	return f->left + f->right < f->columns || f->shape[1] > f->columns - f->labels;
}

static bool rows_left_out(const struct frame *f)
{
	return f->shape[0] > f->rows;
}

/*
 * Chooses columns in turn from the left, with the labels first, and from the right, while they fit with a "…" between them. All columns fit
 * without one, unless the frame came without some.
 */
static void choose(struct frame *f, size_t line)
{
	size_t all = 0, used = 1 + APART, half = FURCA_MIN(f->labels + f->head[1], f->columns);
	size_t cell_max = FURCA_MIN((size_t)CELL_MAX, line / 2 - APART);

	for (size_t c = 0; c < f->columns; c++) {
		for (size_t r = 0; r <= f->rows; r++)
			f->wide[c] = FURCA_MAX(f->wide[c], furca_cli_width(f->cells.cells[r * f->columns + c]));
		f->wide[c] = FURCA_MIN(f->wide[c], cell_max);
		all += f->wide[c] + APART;
	}
	f->left = half;
	f->right = f->columns - half;
	if (all + (columns_left_out(f) ? 1 : 0) <= line + (columns_left_out(f) ? 0 : APART))
		return;
	for (f->left = f->right = 0; f->left + f->right < f->columns;) {
		bool from_left = f->left < f->labels + 1 || f->left - f->labels <= f->right;
		size_t c = from_left ? f->left : f->columns - 1 - f->right;

		if (used + f->wide[c] > line)
			break;
		used += f->wide[c] + APART;
		*(from_left ? &f->left : &f->right) += 1;
	}
}

/* One cell, and what stands between it and the next. */
static void print_cell(FILE *out, const char *text, size_t wide, bool right_aligned, bool last)
{
	size_t n = FURCA_MIN(furca_cli_width(text), wide);

	for (size_t pad = n; right_aligned && pad < wide; pad++)
		(void)fputc(' ', out);
	n = furca_cli_print_cut(out, text, wide);
	for (size_t pad = right_aligned ? wide : n; !last && pad < wide + APART; pad++)
		(void)fputc(' ', out);
}

/* A line of the table: that row of cells, the heads being row 0, or "…" in each column. */
static void print_line(FILE *out, const struct frame *f, size_t row, bool dots)
{
	bool gap = columns_left_out(f);

	for (size_t c = 0; c < f->left; c++)
		print_cell(out, dots ? "…" : f->cells.cells[row * f->columns + c], f->wide[c], f->right_aligned[c],
			   c + 1 == f->left && !gap && f->right == 0);
	if (gap)
		print_cell(out, "…", 1, false, f->right == 0);
	for (size_t c = f->columns - f->right; c < f->columns; c++)
		print_cell(out, dots ? "…" : f->cells.cells[row * f->columns + c], f->wide[c], f->right_aligned[c],
			   c + 1 == f->columns);
	(void)fputc('\n', out);
}

bool furca_cli_print_frame(struct furca_view map, FILE *out)
{
	struct frame f = {0};
	bool good = read_frame(&f, map);

	if (good) {
		choose(&f, furca_cli_line_width(out));
		(void)fputs(furca_cli_color(fileno(out), FURCA_BOLD), out);
		print_line(out, &f, 0, false);
		(void)fputs(furca_cli_color(fileno(out), FURCA_PLAIN), out);
		for (size_t r = 0; r < f.rows; r++) {
			if (rows_left_out(&f) && r == f.head[0])
				print_line(out, &f, 0, true);
			print_line(out, &f, r + 1, false);
		}
		(void)fprintf(out, "%s%llu rows × %llu columns%s\n", furca_cli_color(fileno(out), FURCA_DIM),
			      (unsigned long long)f.shape[0], (unsigned long long)f.shape[1],
			      furca_cli_color(fileno(out), FURCA_PLAIN));
	}
	furca_table_done(&f.cells);
	return good;
}
