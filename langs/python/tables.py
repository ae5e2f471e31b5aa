"""Frames as tables of short texts, bounded: the form of them that a terminal can lay out by its own width, without reading HTML."""

import math
import sys

MIME = "application/vnd.furca.table+json"
MOST = 20  # rows, and columns beside the labels: of more the first and the last
CELL = 80  # characters of one text
TOO_SMALL, TOO_LARGE = 1e-4, 1e15  # floats beyond are written with an exponent
MISSING = ("NoneType", "NAType", "NaTType")


def _ends(count):
    """How many are shown from the start and from the end."""
    return (count, 0) if count <= MOST else (MOST // 2, MOST // 2)


def _number(value):
    return isinstance(value, (int, float)) and type(value) is not bool


def _places(values):
    """Digits behind the point that a column's floats need, or None where they need an exponent."""
    floats = [float(value) for value in values if isinstance(value, float) and math.isfinite(value)]
    if any(value and not TOO_SMALL <= abs(value) < TOO_LARGE for value in floats):
        return None
    return next((n for n in range(1, 6) if all(round(value, n) == round(value, 6) for value in floats)), 6)


def _cell(value, places):
    if isinstance(value, float) and math.isfinite(value):
        whole = "%g" % value if places is None else "%.*f" % (places, value)
    elif isinstance(value, float):
        whole = "NaN" if value != value else str(float(value))
    elif isinstance(value, str):
        whole = value[:CELL + 1]
    elif type(value) in (list, tuple, dict, set, frozenset, bytes, bytearray):
        whole = text.of(value, 4 * CELL)[0].decode("utf-8", "replace")
    else:
        whole = str(value)
    whole = whole if len(whole) <= CELL else whole[:CELL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return whole.encode("utf-8", "backslashreplace").decode()


def _column(name, kind, values):
    places = _places(values)
    present = [value for value in values if type(value).__name__ not in MISSING]
    return {"name": _cell("" if name is None else name, None), "type": _cell(kind, None),
            "align": "right" if present and all(map(_number, present)) else "left"}, [_cell(value, places) for value in values]


def _pandas(frame, head, tail):
    def ends(values):  # an index, or a column's iloc: what counts places, whatever the labels are
        return values[:head].tolist() + values[len(frame) - tail:].tolist()

    index, labels, kinds = frame.index, ends(frame.index), frame.dtypes
    if index.nlevels > 1:
        first = [(name, "", [label[level] for label in labels]) for level, name in enumerate(index.names)]
    else:
        first = [(index.name, str(index.dtype), labels)]
    return first, lambda at: (frame.columns[at], kinds.iloc[at], ends(frame.iloc[:, at].iloc))


def _polars(frame, head, tail):
    def column(at):
        series = frame.to_series(at)
        return series.name, series.dtype, series.head(head).to_list() + series.tail(tail).to_list()
    return [], column


def _arrow(table, head, tail):
    def column(at):
        values = table.column(at)
        return table.schema.names[at], values.type, values.slice(0, head).to_pylist() + values.slice(len(values) - tail).to_pylist()
    return [], column


READERS = (("pandas", "DataFrame", _pandas), ("polars", "DataFrame", _polars), ("pyarrow", "Table", _arrow))


def _reader(value):
    """Of the libraries that are loaded: none is imported for this."""
    for package, name, reader in READERS:
        kind = getattr(sys.modules.get(package), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return reader
    return None


def of(value):
    """The table of a frame, None of anything else; raises what the frame raises.

    {"shape": [rows, columns] of the frame; "labels": how many of the columns below are row labels; "columns": [{"name", "type", "align"}];
    "rows": [[text, …]]; "head": [rows, columns] that are shown before what is left out}.
    """
    reader = _reader(value)
    if reader is None:
        return None
    rows, columns = map(int, value.shape)
    (top, bottom), (left, right) = _ends(rows), _ends(columns)
    labels, column = reader(value, top, bottom)
    made = [_column(*label) for label in labels]
    made += [_column(*column(at)) for at in (*range(left), *range(columns - right, columns))]
    return {"shape": [rows, columns], "labels": len(labels), "columns": [head for head, _ in made],
            "rows": [list(row) for row in zip(*(cells for _, cells in made))], "head": [top, left]}
