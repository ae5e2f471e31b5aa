#!/usr/bin/env python3
"""Writes the tables in README.md and doc/*.md from the tables in the sources, and from the results of bench/results.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. Without arguments the documents are rewritten; with
--check nothing is written and the exit status is 1 if one is out of date.
"""
import ast
import json
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


def results(name):
    with open(os.path.join(TOP, "bench", "results", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def short(value):
    """Three digits, without an exponent."""
    return "%.3g" % value if abs(value) < 999.5 else f"{float('%.3g' % value):,.0f}"


def figure(value, unit):
    """With three digits, in a unit that people read."""
    for small, big in (("us", "ms"), ("ms", "s")):
        if unit.split(" ")[0] == small and value >= 1000:
            value, unit = value / 1000, unit.replace(small, big, 1)
    return "%s %s" % (("%.3g" if value < 100 else "%.0f") % value, unit)


def noise(records):
    levels = [r["noise"] for r in records if r["record"] == "begin" and "noise" in r]
    return "; noise %.2f to %.2f, where 1 is a machine of one's own and over 1.5 nothing is concluded" % (min(levels), max(levels)) if levels else ""


def measured_on(machine, more=""):
    return "Measured %s on %s, %s CPUs, %s GB, Linux %s, %s%s." % (machine["date"], machine["cpu"], machine["cpus"], machine["memory_gb"],
                                                                   machine["kernel"], machine["system"], more)


def bench_safety():
    """From bench/results/safety.json, a run of `furca bench safety`."""
    sys.path.insert(0, os.path.join(TOP, "bench", "safety"))
    import report
    data = report.load(os.path.join(TOP, "bench", "results", "safety.json"))
    rows = []
    for executor in data["executors"]:
        if executor.get("ablation"):
            continue
        c = report.count(report.of(data, executor["name"]))
        costs = sorted((r for r in report.of(data, executor["name"], kind="cost") if r["name"] in ("a frame of 200 MB", "10,000 variables")),
                       key=lambda r: r["language"], reverse=True)
        known = ", %d known" % c["known"] if c["known"] else ""
        told = "; ".join(("%s, %s" % (figure(r["ms"], "ms"), "%.1f MB" % (r["bytes"] / 1e6))) if "ms" in r else "no answer in time" for r in costs)
        bold = "**" if executor["name"] == "furca" else ""
        rows.append((bold + executor["title"] + bold, "%d of %d%s" % (c["leaks"], c["attempts"], known), "%d of %d" % (c["refused"], c["needs"]), c["wrong"], told))
    return (table(("executor", "leaks", "refusals of what readers need", "wrong results", "a look at a frame of 200 MB (bash: 10,000 variables)"), rows) +
            "\n\n" + measured_on(data["machine"]))


def bench_lines(keep):
    head, *records = results("speed")
    rows = []
    for r in records:
        if r["record"] == "line" and keep(r):
            value = r.get("ratio", r.get("figure"))
            goal = "%s %g" % (r["sense"], r["goal"]) if "goal" in r else ""
            three = "; ".join("%s %s" % (s["name"], figure(s["median"], s["unit"])) for s in (r.get("over"), r.get("under")) if s)
            rows.append(("`%s`" % r["bench"], r["name"], "%s (%s to %s)" % tuple(map(short, (value, *r["spread"]))), goal, r["verdict"], three))
    return table(("benchmark", "line", "ratio, middle half", "goal", "verdict", "medians"), rows) + "\n\n" + measured_on(head["machine"], noise(records))


def bench_speed():
    """All lines, from bench/results/speed.json, a run of `furca bench speed`."""
    return bench_lines(lambda r: True)


def bench_misses():
    """Lines that are not at their goal, also those of a run that was too noisy to conclude."""
    def short(r):
        value = r.get("ratio", r.get("figure"))
        return "goal" in r and (value > r["goal"] if r["sense"] == "at most" else value < r["goal"])
    return bench_lines(short)


def bench_guard():
    """What each kind of call costs in counts, from bench/guard.json."""
    counts = {}
    for name, bound in json.loads(read("bench/guard.json")).items():
        kind, what = name.split(": ")
        counts.setdefault(kind, {})[what] = "%s, at most %s" % tuple("%.3g" % v if v < 100 else "%.0f" % v for v in (bound["seen"], bound["at_most"]))
    return table(("call", "system calls, and the bound", "page faults, and the bound"),
                 [(kind, c.get("system calls", ""), c.get("page faults", "")) for kind, c in counts.items()])


def bench_headline():
    """The few lines that README quotes."""
    with open(os.path.join(TOP, "bench", "results", "headline.txt"), encoding="utf-8") as f:
        wanted = [line.strip().split(": ", 1) for line in f if line.strip()]
    head, *records = results("speed")
    missing = [w for w in wanted if not any(r["record"] == "line" and [r["bench"], r["name"]] == w for r in records)]
    if missing:
        sys.exit("bench/results/headline.txt names what the stored run lacks: " + "; ".join(map(": ".join, missing)))
    rows = []
    for bench, name in wanted:
        for r in records:
            if r["record"] == "line" and (r["bench"], r["name"]) == (bench, name):
                over, under = r["over"], r.get("under")
                rows.append((r.get("workload") or name, "%s: %s" % (over["name"], figure(over["median"], over["unit"])),
                             "%s: %s" % (under["name"], figure(under["median"], under["unit"])) if under else "",
                             "%s%s" % (short(r.get("ratio", r.get("figure"))), ", noisy" if r["verdict"] == "NOISY" else "")))
    return table(("workload", "this", "against this", "ratio"), rows) + "\n\n" + measured_on(head["machine"], noise(records) + "; `furca bench` measures it on yours")


TABLES = {f.__name__: f for f in (limits, errors, methods, to_client, frames, barriers, faults, bench_safety, bench_speed, bench_misses, bench_guard, bench_headline)}


def filled(text):
    def fill(match):
        return "<!-- table: %s -->\n%s\n<!-- end -->" % (match[1], TABLES[match[1]]())
    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.S)


def main():
    check = sys.argv[1:] == ["--check"]
    stale = 0
    for path in ["README.md"] + sorted("doc/" + name for name in os.listdir(os.path.join(TOP, "doc")) if name.endswith(".md")):
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
