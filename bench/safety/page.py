"""The safety benchmark's result as one HTML file: no script, no network; plots are inline SVG. Light and dark."""
import html
import math

import report

STYLE = """
:root{--bg:#fbfbfa;--fg:#1c1d1f;--dim:#6b6f76;--line:#e3e3df;--card:#fff;--leak:#d6453d;--refused:#e0a030;--wrong:#8a63c7;--fine:#2f9e6e;--accent:#2563a8;--row:#f4f4f1}
@media (prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e7e8ea;--dim:#9aa0a8;--line:#2c3036;--card:#1c1f24;--leak:#f0716a;--refused:#e6b450;--wrong:#ac8ae6;--fine:#4fc08d;--accent:#6aa6e8;--row:#20242a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 24px 80px}h1{font-size:30px;margin:0 0 6px;letter-spacing:-.02em}h2{font-size:19px;margin:44px 0 8px}
p{max-width:75ch;margin:8px 0}.dim{color:var(--dim)}.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:14px 0;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:6px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal}th{font-weight:600;font-size:12.5px;color:var(--dim);vertical-align:bottom}tr:last-child td{border-bottom:0}
tr.own td{font-weight:650}td.zero{color:var(--dim)}td.leak{color:var(--leak)}td.refused{color:var(--refused)}td.wrong{color:var(--wrong)}
td.heat{text-align:center;border:2px solid var(--card);border-radius:6px;padding:5px 4px;min-width:52px}
svg{display:block;max-width:100%;height:auto}svg text{fill:var(--fg);font:13px system-ui,sans-serif}svg .dim{fill:var(--dim)}svg .own{font-weight:650}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 6px 0 16px;vertical-align:-1px}.key:first-child{margin-left:0}
details{margin:6px 0}summary{cursor:pointer;padding:4px 0}details table{font-size:13.5px;margin:4px 0 14px}details td{white-space:normal;text-align:left}
.big{display:flex;gap:34px;flex-wrap:wrap;margin:22px 0}.big div{min-width:120px}.big b{display:block;font-size:34px;letter-spacing:-.02em;line-height:1.1}
"""
KEYS = (("leak", "changed something outside"), ("refused", "refused what a reader needs"), ("wrong", "gave a wrong result"))


def e(text):
    return html.escape(str(text))


def bars(data, names, titles):
    """What went wrong, of all cases, for each executor: one bar in three colours, as shares of the cases that ran."""
    height, left, width = 30, 250, 640
    out = [f'<svg viewBox="0 0 {left + width + 150} {height * len(names) + 8}" role="img" aria-label="failures by executor">']
    for i, name in enumerate(names):
        c = report.count(report.of(data, name))
        total, x, y = max(1, c["attempts"]), left, i * height + 6
        out.append(f'<text x="{left - 12}" y="{y + 14}" text-anchor="end" class="{"own" if name == "furca" else ""}">{e(titles[name])}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{width}" height="19" rx="4" fill="var(--row)"/>')
        for kind, value in (("leak", c["leaks"]), ("refused", c["refused"]), ("wrong", c["wrong"])):
            w = width * value / total
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="19" fill="var(--{kind})"><title>{value} {kind} of {total}</title></rect>')
            x += w
        bad = c["leaks"] + c["refused"] + c["wrong"]
        out.append(f'<text x="{x + 9:.1f}" y="{y + 14}" class="dim">{bad} of {total}</text>' if bad else
                   f'<text x="{left + 9}" y="{y + 14}" style="fill:var(--fine)">none of {total}</text>')
    return "".join(out) + "</svg>"


def costs(data, names, titles, unit):
    """Time or memory of a look, on a logarithmic scale: a dot for each size of session."""
    sizes = [r["name"] for r in report.of(data, "furca", kind="cost", language="python")]
    colours = ("var(--accent)", "var(--fine)", "var(--leak)")
    rows = [(n, [r for r in report.of(data, n, kind="cost", language="python") if unit in r]) for n in names]
    rows = [(n, found) for n, found in rows if found]
    floor = 0.1 if unit == "ms" else 1e5
    values = [max(floor, r[unit]) for _, found in rows for r in found]
    if not values:
        return ""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, width, height = 250, 640, 30

    def at(v):
        return left + width * (math.log10(max(floor, v)) - low) / max(1, high - low)

    out = [f'<svg viewBox="0 0 {left + width + 150} {height * len(rows) + 40}" role="img" aria-label="cost by executor">']
    for power in range(low, high + 1):
        x, tick = at(10 ** power), 10 ** power if unit == "ms" else 10 ** power / 1e6
        out.append(f'<line x1="{x}" x2="{x}" y1="4" y2="{height * len(rows) + 8}" stroke="var(--line)"/>')
        out.append(f'<text x="{x}" y="{height * len(rows) + 26}" text-anchor="middle" class="dim">{tick:g} {"ms" if unit == "ms" else "MB"}</text>')
    for i, (name, found) in enumerate(rows):
        y = i * height + 20
        out.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end" class="{"own" if name == "furca" else ""}">{e(titles[name])}</text>')
        for r in found:
            told = f"{r['name']}: {r['ms']:.2f} ms" if unit == "ms" else f"{r['name']}: {report.size(r['bytes'])}"
            out.append(f'<circle cx="{at(r[unit]):.1f}" cy="{y}" r="6" fill="{colours[sizes.index(r["name"]) % 3] if r["name"] in sizes else colours[0]}" fill-opacity=".85"><title>{e(told)}</title></circle>')
    key = "".join(f'<span class="key" style="background:{colours[i % 3]}"></span>{e(s)}' for i, s in enumerate(sizes))
    return "".join(out) + f'</svg><p class="dim">{key}</p>'


def heat(data, names, titles):
    """Leaks, refusals and wrong results for each class and executor, as a share."""
    head = "".join(f"<th>{e(titles[n])}</th>" for n in names)
    rows = []
    for cls in report.classes(data):
        cells = []
        for name in names:
            c = report.count(report.of(data, name, **{"class": cls}))
            bad, total = c["leaks"] + c["refused"] + c["wrong"], c["attempts"]
            if not total:
                cells.append('<td class="heat zero">·</td>')
                continue
            told = f"{c['leaks']} leaks, {c['refused']} refusals, {c['wrong']} wrong results of {total} cases"
            colour = f"color-mix(in srgb,var(--leak) {round(12 + 60 * bad / total)}%,var(--card))" if bad else "color-mix(in srgb,var(--fine) 16%,var(--card))"
            cells.append(f'<td class="heat" style="background:{colour}" title="{told}">{bad if bad else "0"}<span class="dim">/{total}</span></td>')
        rows.append(f"<tr><td>{e(cls)}</td>{''.join(cells)}</tr>")
    return f"<table><tr><th>class</th>{head}</tr>{''.join(rows)}</table>"


def totals(data, names, titles):
    rows = []
    for name in names:
        c = report.count(report.of(data, name))
        cells = [f'<td class="{kind if c[key] else "zero"}">{c[key]}</td>' for kind, key in (("leak", "leaks"), ("refused", "refused"), ("wrong", "wrong"))]
        rows.append(f'<tr class="{"own" if name == "furca" else ""}"><td>{e(titles[name])}</td>{"".join(cells)}<td class="zero">{c["attempts"]}</td>'
                    f'<td class="zero">{c["needs"]}</td><td class="zero">{c["known"] or ""}</td><td class="zero">{c["broken"] or ""}</td></tr>')
    return ("<table><tr><th>executor</th><th>leaks</th><th>refusals</th><th>wrong</th><th>cases</th><th>of them needs</th><th>known, told</th>"
            f"<th>could not be set up</th></tr>{''.join(rows)}</table>")


def details(data, names, titles):
    out = []
    for name in names:
        bad = [r for r in report.of(data, name) if r["outcome"] in ("leak", "refused", "wrong") and r["kind"] != "cost"]
        if not bad:
            continue
        rows = "".join(f"<tr><td>{e(r['class'])}</td><td>{e(r['name'])}</td><td class=\"{r['outcome']}\">{e(r['outcome'])}</td>"
                       f"<td class=\"dim\">{e('known: ' + r['known'] if 'known' in r else r.get('told') or '')}</td></tr>" for r in bad)
        out.append(f"<details><summary>{e(titles[name])}: {len(bad)}</summary><table>{rows}</table></details>")
    return "".join(out)


def make(data):
    titles = {x["name"]: x["title"] for x in data["executors"]}
    shown = [x["name"] for x in data["executors"] if not x.get("ablation")]
    ablated = [x["name"] for x in data["executors"] if x.get("ablation")]
    m, own = data["machine"], report.count(report.of(data, "furca"))
    key = "".join(f'<span class="key" style="background:var(--{k})"></span>{t}' for k, t in KEYS)
    skipped = "".join(f"<p class=\"dim\">Not run: {e(n)}, {e(why)}.</p>" for n, why in data["skipped"].items())
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>How safe is a look?</title><style>{STYLE}</style><main><h1>How safe is a look?</h1>",
        f'<p class="dim">{e(m["date"])} · {e(m["cpu"])}, {m["cpus"]} CPUs, {m["memory_gb"]} GB · Linux {e(m["kernel"])} · {e(m["system"])} · '
        f'Python {e(m["python"])} · bash {e(m["bash"])} · {e(m["furca"])} · as root</p>',
        "<p>An agent has a session with state that was costly to build, and wants to try something without changing it. Each executor ran each of "
        f"{data['cases']} cases in namespaces of its own: attempts to change something outside the look, and things that whoever looks needs, such as a "
        "temporary file, a pool of threads or the next random number. A refusal or a wrong result counts as much as a leak.</p>",
        f'<div class="big"><div><b>{own["leaks"]}</b>leaks of furca</div><div><b>{own["refused"]}</b>refusals</div><div><b>{own["wrong"]}</b>wrong results</div>'
        f'<div><b>{own["attempts"]}</b>cases</div></div>',
        f'<h2>What went wrong</h2><p class="dim">{key}</p><div class="card">{bars(data, shown, titles)}</div>',
        f'<div class="card">{totals(data, shown, titles)}</div>{skipped}',
        f'<h2>By class</h2><p class="dim">Failed of so many cases; point at a field for what it was.</p><div class="card">{heat(data, shown, titles)}</div>',
        f'<h2>What a look takes</h2><p class="dim">Median time of a look, sessions of three sizes; logarithmic.</p><div class="card">{costs(data, shown, titles, "ms")}</div>',
        f'<h2>What a look adds to memory</h2><p class="dim">While it lasts; logarithmic, from 0.1 MB.</p><div class="card">{costs(data, shown, titles, "bytes")}</div>',
    ]
    if ablated:
        parts.append(f'<h2>What each barrier of furca is for</h2><p class="dim">The same cases with one barrier taken away.</p>'
                     f'<div class="card">{bars(data, ["furca", *ablated], titles)}</div>')
    parts.append(f"<h2>Each failure</h2>{details(data, shown + ablated, titles)}")
    parts.append('<p class="dim">Made by <code>furca bench safety</code>; doc/bench-safety.md says how to add an executor or a case.</p></main></html>')
    return "\n".join(parts)
