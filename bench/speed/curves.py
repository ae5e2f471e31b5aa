"""The speed benchmark's result as one HTML file: lines with their verdicts, growth curves as inline SVG. Light and dark, no network."""
import html
import math

import page

COLOURS = ("var(--accent)", "var(--fine)", "var(--leak)", "var(--refused)", "var(--wrong)", "var(--dim)")


def e(text):
    return html.escape(str(text))


def plot(points, unit, x_unit):
    """Curves on two logarithmic axes. points: name -> [(x, low, median, high)]."""
    names = list(points)
    xs = [p[0] for c in points.values() for p in c]
    ys = [max(1e-3, v) for c in points.values() for p in c for v in p[1:]]
    left, right, top, height, width = 70, 210, 10, 260, 560
    x0, x1 = math.log10(min(xs)), math.log10(max(xs))
    y0, y1 = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at_x(x):
        return left + (width * (math.log10(x) - x0) / (x1 - x0) if x1 > x0 else width / 2)

    def at_y(y):
        return top + height * (1 - (math.log10(max(1e-3, y)) - y0) / max(1, y1 - y0))

    out = [f'<svg viewBox="0 0 {left + width + right} {top + height + 44}" role="img" aria-label="growth curves">']
    for power in range(y0, y1 + 1):
        y = at_y(10 ** power)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
                   f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="dim">{10 ** power:g}</text>')
    for x in sorted(set(xs)):
        out.append(f'<text x="{at_x(x):.1f}" y="{top + height + 20}" text-anchor="middle" class="dim">{x:g}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle" class="dim">{e(x_unit)}; {e(unit)}, logarithmic</text>')
    ends = sorted((at_y(sorted(c)[-1][2]), n) for n, c in points.items())
    placed = {}
    for y, name in ends:
        placed[name] = max(y, max(placed.values(), default=-99) + 17)
    for i, name in enumerate(names):
        curve, colour = sorted(points[name]), COLOURS[i % len(COLOURS)]
        line = " ".join(f"{at_x(x):.1f},{at_y(m):.1f}" for x, _, m, _ in curve)
        band = [f"{at_x(x):.1f},{at_y(low):.1f}" for x, low, _, _ in curve] + [f"{at_x(x):.1f},{at_y(high):.1f}" for x, _, _, high in reversed(curve)]
        out.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity=".10"/>'
                   f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{3 if name == "furca" else 2}"/>')
        out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(m):.1f}" r="4" fill="{colour}"><title>{e(name)}: {m:g} {e(unit)} at {x:g}</title></circle>' for x, _, m, _ in curve]
        out.append(f'<text x="{at_x(curve[-1][0]) + 10:.1f}" y="{placed[name] + 4:.1f}" style="fill:{colour}" class="{"own" if name.startswith("furca") else ""}">{e(name)}</text>')
    return "".join(out) + "</svg>"


def curves_of(records):
    groups = {}
    for r in records:
        if r["record"] == "series" and r.get("curve"):
            points = groups.setdefault((r["bench"], r["unit"], r.get("x_unit") or ""), {})
            points.setdefault(r["curve"], []).append((r["x"], r["min"], r["median"], r["max"]))
    return groups


def table(records):
    colours = {"PASS": "var(--fine)", "MISS": "var(--leak)", "NOISY": "var(--refused)", "-": "var(--dim)"}
    rows = []
    for r in records:
        if r["record"] != "line":
            continue
        value, low, high = r.get("ratio", r.get("figure")), *r["spread"]
        goal = f"{r['sense']} {r['goal']:g}" if "goal" in r else ""
        three = "<br>".join(f"{e(s['name'])} {s['min']:g} / {s['median']:g} / {s['max']:g} {e(s['unit'])}" for s in (r.get("over"), r.get("under")) if s)
        rows.append(f'<tr><td>{e(r["bench"])}</td><td style="text-align:left;white-space:normal">{e(r["name"])}<br><span class="dim">{e(r.get("workload") or "")}</span></td>'
                    f'<td>{value:.3g} {e(r.get("unit") or "")}<br><span class="dim">{low:.3g} – {high:.3g}</span></td><td>{e(goal)}</td>'
                    f'<td style="color:{colours[r["verdict"]]};font-weight:650">{e(r["verdict"])}</td><td class="dim">{three}</td></tr>')
    return ('<table><tr><th>benchmark</th><th style="text-align:left">line</th><th>ratio, middle half</th><th>goal</th><th>verdict</th>'
            f'<th>min / median / max</th></tr>{"".join(rows)}</table>')


def make(data):
    m, titles = data["machine"], {r["bench"]: r["title"] for r in data["records"] if r["record"] == "begin"}
    noise = [r["noise"] for r in data["records"] if r["record"] == "begin" and "noise" in r]
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>furca bench speed</title>'
             f"<style>{page.STYLE}</style><main><h1>How fast is furca?</h1>",
             f'<p class="dim">{e(m["date"])} · {e(m["cpu"])}, {m["cpus"]} CPUs, {m["memory_gb"]} GB · Linux {e(m["kernel"])} · {e(m["system"])} · {e(m["furca"])}'
             f'{" · quick" if data["quick"] else ""} · {data["seconds"]} s · noise {min(noise, default=0):.2f} to {max(noise, default=0):.2f}</p>',
             "<p>Each line sets one thing against another that was measured in turn with it, round by round; trust the ratios more than the figures. "
             "A goal is what the project has set itself; a missed one is explained in doc/performance.md.</p>",
             f'<h2>Lines</h2><div class="card">{table(data["records"])}</div>']
    for (bench, unit, x_unit), points in curves_of(data["records"]).items():
        if max(len(c) for c in points.values()) > 1:
            parts.append(f'<h2>{e(titles.get(bench, bench).split(": ", 1)[-1])}</h2><div class="card">{plot(points, unit, x_unit)}</div>')
    skipped = "".join(f"<p class=\"dim\">Skipped: {e(r['bench'])}, {e(r['name'])}: {e(r['reason'])}</p>" for r in data["records"] if r["record"] == "skipped")
    return "\n".join(parts) + skipped + "</main></html>"
