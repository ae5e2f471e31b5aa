#!/usr/bin/env python3
"""Writes the tables in doc/*.md from the tables in the sources.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. Without arguments the documents are rewritten; with
--check nothing is written and the exit status is 1 if one is out of date.
"""
import ast
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def entries(path, macro):
    """The arguments of each use of a macro in a .def file, strings unquoted."""
    found = []
    for line in re.findall(r"^%s\((.*)\)$" % macro, read(path), re.M):
        arguments = [a or b for a, b in re.findall(r'("(?:[^"\\]|\\.)*")|([^,"]+)', line) if (a or b).strip()]
        found.append([ast.literal_eval(a) if a.startswith('"') else a.strip() for a in arguments])
    return found


def row(*cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def table(head, rows):
    return "\n".join([row(*head), row(*["---"] * len(head))] + [row(*r) for r in rows])


def size(text):
    """'64U << 20' as people write it."""
    match = re.fullmatch(r"\(?(\d+)U?(?: << (\d+))?\)?", text.strip())
    number, shift = int(match[1]), int(match[2] or 0)
    return number, shift


def limit_text(value, comment):
    number, shift = size(value)
    if comment.startswith("bytes") or "output" in comment or "at most" == comment[-7:]:
        for unit, by in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
            if shift >= by:
                return "%d %s" % (number << (shift - by), unit)
    return "{:,}".format(number << shift).replace(",", " ")


def limits():
    rows = []
    for name, value, comment in re.findall(r"^#define FURCA_((?:MAX|DEFAULT)_\w+) (\(?\d+U?(?: << \d+)?\)?)\s*/\* (.*?) \*/$", read("bridge/wire/limits.h"), re.M):
        rows.append(("`%s`" % name, limit_text(value, comment), comment))
    missing = re.findall(r"^#define FURCA_((?:MAX|DEFAULT)_\w+) (\(?\d+U?(?: << \d+)?\)?)\s*$", read("bridge/wire/limits.h"), re.M)
    rows += [("`%s`" % name, limit_text(value, "number of"), "") for name, value in missing]
    return table(("limit", "value", "of what"), rows)


def errors():
    rows = [("`FURCA_E_%s`" % n, number, "`%s`" % errnum, "`%s`" % kind, suggestion)
            for n, number, errnum, kind, suggestion in entries("base/err.def", "ERR")]
    return table(("code", "number", "errno", "`error_type`", "suggestion, unless the failure gives a better one"), rows)


def methods():
    return table(("method", "since", "what it does"),
                 [("`%s`" % n, since, what) for n, _, since, what in entries("bridge/wire/messages.def", "METHOD")])


def to_client():
    return table(("name", "kind", "since", "what it says"),
                 [("`%s`" % n, *rest) for n, *rest in entries("bridge/wire/messages.def", "TO_CLIENT")])


def frames():
    rows = []
    for macro, where in (("HOST", "host"), ("LANE", "lane"), ("INIT", "init")):
        rows += [(where, "`%s`" % n, number, direction.lower().replace("_", " "), what)
                 for n, number, direction, _, what in entries("bridge/wire/messages.def", macro)]
    return table(("channel", "frame", "number", "direction", "what it says"), rows)


def barriers():
    return table(("word", "required by default", "what is kept in"),
                 [("`%s`" % word, "yes" if required == "1" else "no", what)
                  for _, _, word, required, what in entries("snapshot/barrier.def", "BARRIER")])


def faults():
    return table(("point", "where"), [("`%s`" % n, where) for n, where in entries("base/fault.def", "FAULT")])


TABLES = {f.__name__: f for f in (limits, errors, methods, to_client, frames, barriers, faults)}


def filled(text):
    def fill(match):
        return "<!-- table: %s -->\n%s\n<!-- end -->" % (match[1], TABLES[match[1]]())
    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.S)


def main():
    check = sys.argv[1:] == ["--check"]
    stale = 0
    for name in sorted(os.listdir(os.path.join(TOP, "doc"))):
        if not name.endswith(".md"):
            continue
        path = "doc/" + name
        old = read(path)
        new = filled(old)
        if old == new:
            continue
        if check:
            print("%s: its tables are not those of the sources; run doc/tables.py" % path)
            stale += 1
        else:
            with open(os.path.join(TOP, path), "w", encoding="utf-8") as f:
                f.write(new)
            print("wrote " + path)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
