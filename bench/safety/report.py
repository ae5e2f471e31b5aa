"""Counts the safety benchmark's results, as a table, as JSON and as a page."""
import json
import pathlib
import time

import machine
import page

ORDER = ["memory", "in place", "native buffer", "shared mapping", "descriptor", "disk", "process", "threads", "ipc", "network", "kernel",
         "time and RNG", "capability"]


def collect(executors, cases, results, skipped, begun, program):
    rows = []
    for (e, c), result in results.items():
        case = cases[c]
        row = {"executor": executors[e]["name"], "class": case["class"], "language": case["language"], "name": case["name"],
               "kind": "cost" if "cost" in case else "need" if "read" in case else "attempt", **result}
        if case.get("known") and row["executor"].startswith("furca") and row["outcome"] in ("leak", "wrong"):
            row["known"] = case["known"]
        rows.append(row)
    rows.sort(key=lambda r: (r["executor"], r["kind"], r["class"], r["name"]))
    return {"machine": machine.describe(program), "seconds": round(time.time() - begun), "cases": len(cases), "skipped": skipped,
            "executors": [{k: e[k] for k in ("name", "title", "languages", "ablation") if k in e} for e in executors], "results": rows}


def together(parts):
    """Several results as one; the machine is the first one's."""
    whole = {**parts[0], "executors": [], "results": [], "skipped": {}, "seconds": sum(p["seconds"] for p in parts)}
    whole["cases"] = max(p["cases"] for p in parts)
    for part in parts:
        whole["skipped"].update(part["skipped"])
        whole["executors"] += [e for e in part["executors"] if e["name"] not in [x["name"] for x in whole["executors"]]]
        new = {(r["executor"], r["kind"], r["class"], r["language"], r["name"]) for r in part["results"]}
        whole["results"] = [r for r in whole["results"] if (r["executor"], r["kind"], r["class"], r["language"], r["name"]) not in new] + part["results"]
    return whole


def packed(data):
    """Results by case, those that went well by name only: the file is a sixth of what it would be."""
    cases = {}
    for r in data["results"]:
        case = cases.setdefault((r["kind"], r["class"], r["language"], r["name"]), {"fine": [], "others": {}})
        if r["outcome"] == "fine" and r["kind"] != "cost":
            case["fine"].append(r["executor"])
        else:
            case["others"][r["executor"]] = {k: (v[:120] if isinstance(v, str) else v) for k, v in r.items() if k in ("outcome", "told", "known", "ms", "spread", "bytes")}
    return {**data, "results": [[*key, value["fine"], value["others"]] for key, value in sorted(cases.items())]}


def load(path):
    data = json.loads(pathlib.Path(path).read_text())
    if data["results"] and isinstance(data["results"][0], list):
        rows = []
        for kind, cls, language, name, fine, others in data["results"]:
            same = {"kind": kind, "class": cls, "language": language, "name": name}
            rows += [{**same, "executor": e, "outcome": "fine"} for e in fine] + [{**same, "executor": e, **o} for e, o in others.items()]
        data["results"] = rows
    return data


def of(data, executor, **wanted):
    return [r for r in data["results"] if r["executor"] == executor and all(r[k] == v for k, v in wanted.items())]


def count(rows):
    """Leaks (a known one is told apart), refusals and wrong results, each with out of how many."""
    attempts = [r for r in rows if r["kind"] in ("attempt", "need") and r["outcome"] != "broken"]
    needs = [r for r in rows if r["kind"] == "need" and r["outcome"] != "broken"]
    told = sum("known" in r for r in rows)
    return {"leaks": sum(r["outcome"] == "leak" and "known" not in r for r in rows), "known": told, "attempts": len(attempts),
            "refused": sum(r["outcome"] == "refused" for r in needs), "wrong": sum(r["outcome"] == "wrong" and "known" not in r for r in needs),
            "needs": len(needs), "broken": sum(r["outcome"] == "broken" for r in rows)}


def classes(data):
    there = {r["class"] for r in data["results"]} - {"cost"}
    return [c for c in ORDER if c in there] + sorted(there - set(ORDER))


def size(n):
    return "%.1f MB" % (n / 1e6) if n >= 0 else "less than nothing"


def text(data):
    out = []
    m = data["machine"]
    out.append(f"{m['date']}, {m['cpu']}, {m['cpus']} CPUs, {m['memory_gb']} GB, Linux {m['kernel']}, {m['system']}, {m['furca']}")
    names = [e["name"] for e in data["executors"]]
    wide = max(map(len, names)) + 2
    out.append("\nleaks / refusals of what readers need / wrong results, by class (of so many attempts and needs)")
    for cls in classes(data):
        out.append(f"  {cls}")
        for name in names:
            c = count(of(data, name, **{"class": cls}))
            if c["attempts"] or c["broken"]:
                known = f" ({c['known']} known)" if c["known"] else ""
                broken = f", {c['broken']} could not be set up" if c["broken"] else ""
                out.append(f"    {name:{wide}}{c['leaks']:4} /{c['refused']:4} /{c['wrong']:4}   of {c['attempts']}, {c['needs']}{known}{broken}")
    out.append("\nall classes, and what a look costs")
    for name in names:
        c = count(of(data, name))
        costs = of(data, name, kind="cost")
        told = ", ".join(f"{r['name']}: {r['ms']:.2f} ms, {size(r['bytes'])}" if "ms" in r else f"{r['name']}: {r['outcome']}" for r in costs)
        out.append(f"  {name:{wide}}{c['leaks']:4} leaks {c['refused']:4} refusals {c['wrong']:4} wrong   {told}")
    for name, why in data["skipped"].items():
        out.append(f"  {name:{wide}}skipped: {why}")
    mine = [r for r in of(data, "furca") if r["outcome"] in ("leak", "refused", "wrong", "broken")]
    for r in mine:
        out.append(f"  furca: {r['class']}: {r['name']}: {r['outcome']}{' (known: ' + r['known'] + ')' if 'known' in r else ''}: {r.get('told')}")
    return "\n".join(out)


def lines(data):
    """Records in the form of bench/README.md: furca's promise as lines with a goal."""
    c = count(of(data, "furca"))
    yield {"record": "begin", "bench": "safety", "title": "bench safety", "cpu": data["machine"]["cpu"], "kernel": data["machine"]["kernel"]}
    for name, value, of_what in (("leaks", c["leaks"], c["attempts"]), ("refusals of what readers need", c["refused"], c["needs"]),
                                 ("wrong results", c["wrong"], c["needs"])):
        yield {"record": "line", "bench": "safety", "name": name, "workload": f"{of_what} cases", "figure": value, "unit": "", "spread": [value, value],
               "sense": "at most", "goal": 0, "verdict": "PASS" if value == 0 and of_what else "MISS"}


def write(data, folder):
    """Prints the table and writes both files. The benchmark's exit status."""
    out = pathlib.Path(folder or ".")
    out.mkdir(parents=True, exist_ok=True)
    compact = packed(data)
    rows = ",\n".join(json.dumps(r) for r in compact.pop("results"))
    (out / "safety.json").write_text(json.dumps(compact, indent=1)[:-2] + ',\n "results": [\n' + rows + "\n]}\n")
    (out / "safety.html").write_text(page.make(data))
    print(text(data))
    c = count(of(data, "furca"))
    if not c["attempts"]:
        return 0
    verdict = "PASS" if not (c["leaks"] or c["refused"] or c["wrong"] or c["broken"]) else "MISS"
    print(f"\nfurca: {c['leaks']} leaks, {c['refused']} refusals, {c['wrong']} wrong results of {c['attempts']} cases, goal 0: {verdict}")
    print(f"written: {out / 'safety.json'}, {out / 'safety.html'}")
    return 0 if verdict == "PASS" else 1
