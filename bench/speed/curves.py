"""The speed benchmark's result as one HTML file: lines with their verdicts, growth curves as inline SVG. Light and dark, no network."""
import html
import math
import re

import page

COLOURS = ("var(--accent)", "var(--fine)", "var(--leak)", "var(--refused)", "var(--wrong)", "var(--dim)")  # more curves than that begin anew


def e(text):
    return html.escape(str(text))


LABEL_GAP, CHARACTER = 17, 7.6  # pixels: between two labels, and of a character at most


def scaled(value, unit):
    """A figure and its unit, so that people read it: 12000 us is 12 ms."""
    first, *rest = unit.split(" ", 1)
    steps = ["us", "ms", "s"]
    if first in steps and value > 0:
        up = max(0, min(2 - steps.index(first), math.floor(math.log10(value) + 1e-9) // 3))
        value, first = value / 1000 ** up, steps[steps.index(first) + up].replace("us", "µs")
    return value, " ".join([first, *rest])


def digits(value):
    return "%.3g" % value if abs(value) < 1000 else f"{value:,.0f}"


def tick(value, unit):
    value, unit = scaled(value, unit)
    return "%g %s" % (value, unit.split(" ")[0])


def three(series):
    """Name, median, and from minimum to maximum, in one unit."""
    value, unit = scaled(series["median"], series["unit"])
    by = series["median"] / value if value else 1
    low, high = series["min"] / by, series["max"] / by
    return f'{e(series["name"])}: <span style="white-space:nowrap"><b>{digits(value)}</b> ({digits(low)} – {digits(high)}) {e(unit)}</span>'


def apart(wanted, top, bottom):
    """Places for labels, each as near to where it wants to be as the gap between two allows; name -> y."""
    names = sorted(wanted, key=wanted.get)
    places, least = [], top
    for name in names:
        places.append(max(wanted[name], least))
        least = places[-1] + LABEL_GAP
    most = bottom
    for i in reversed(range(len(places))):
        places[i] = min(places[i], most)
        most = places[i] - LABEL_GAP
    return dict(zip(names, places))


def plot(points, unit, x_unit):
    """Curves on two logarithmic axes, their names at the right. points: name -> [(x, low, median, high)]."""
    names = list(points)
    xs = sorted({p[0] for c in points.values() for p in c})
    ys = [max(1e-3, v) for c in points.values() for p in c for v in p[1:]]
    left, top, height, width = 70, 14, 280, 560
    right = 30 + CHARACTER * max(map(len, names))
    x0, x1 = math.log10(xs[0]), math.log10(xs[-1])
    y0, y1 = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at_x(x):
        return left + (width * (math.log10(x) - x0) / (x1 - x0) if x1 > x0 else width / 2)

    def at_y(y):
        return top + height * (1 - (math.log10(max(1e-3, y)) - y0) / max(1, y1 - y0))

    out = [f'<svg viewBox="0 0 {left + width + right:.0f} {top + height + 44}" style="max-width:{left + width + right:.0f}px" role="img" aria-label="growth curves">']
    for power in range(y0, max(y0 + 1, y1) + 1):
        y = at_y(10 ** power)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
                   f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="dim">{tick(10 ** power, unit)}</text>')
    last = -1e3
    for x in xs:
        if at_x(x) - last > CHARACTER * 6 or x == xs[0]:
            last = at_x(x)
            out.append(f'<text x="{last:.1f}" y="{top + height + 20}" text-anchor="middle" class="dim">{x:g}</text>')
    axis = re.sub(r"^(us|ms|s)\b", "time", unit)
    out.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle" class="dim">{e(x_unit)}; {e(axis)} (logarithmic)</text>')
    placed = apart({n: at_y(sorted(c)[-1][2]) for n, c in points.items()}, top, top + height)
    for i, name in enumerate(names):
        curve, colour = sorted(points[name]), COLOURS[i % len(COLOURS)]
        line = " ".join(f"{at_x(x):.1f},{at_y(m):.1f}" for x, _, m, _ in curve)
        band = [f"{at_x(x):.1f},{at_y(low):.1f}" for x, low, _, _ in curve] + [f"{at_x(x):.1f},{at_y(high):.1f}" for x, _, _, high in reversed(curve)]
        out.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity=".10"/>'
                   f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{3 if name.startswith("furca") else 2}"/>')
        out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(m):.1f}" r="4" fill="{colour}"><title>{e(name)}: {m:g} {e(unit)} at {x:g}</title></circle>' for x, _, m, _ in curve]
        # From the curve's end to its name, which stands where no curve comes.
        out.append(f'<polyline points="{at_x(curve[-1][0]):.1f},{at_y(curve[-1][2]):.1f} {left + width + 4},{placed[name]:.1f} {left + width + 12},{placed[name]:.1f}" '
                   f'fill="none" stroke="{colour}" stroke-width="1" stroke-dasharray="2 4"/>'
                   f'<text x="{left + width + 16}" y="{placed[name] + 4:.1f}" style="fill:{colour}" class="{"own" if name.startswith("furca") else ""}">{e(name)}</text>')
    return "".join(out) + "</svg>"


def ended(records, bench, x_unit):
    """Where curves of a plot end before the others, and why."""
    return "".join(f'<p class="dim">{e(r["curve"])}: {e(r["reason"])}</p>' for r in records
                   if r["record"] == "skipped" and r["bench"] == bench and r.get("curve") and r.get("x_unit") == x_unit)


def curves_of(records):
    groups = {}
    for r in records:
        if r["record"] == "series" and r.get("curve"):
            points = groups.setdefault((r["bench"], r["unit"], r.get("x_unit") or ""), {})
            points.setdefault(r["curve"], []).append((r["x"], r["min"], r["median"], r["max"]))
    return groups


def limit_of(line):
    """What the machine allows, unless the line is set against it already."""
    limit = line.get("limit")
    return limit if limit and limit["name"] not in (line["over"]["name"], (line.get("under") or {}).get("name")) else None


def table(records):
    colours = {"PASS": "var(--fine)", "MISS": "var(--leak)", "NOISY": "var(--refused)", "-": "var(--dim)"}
    rows = []
    for r in records:
        if r["record"] != "line":
            continue
        value, low, high = r.get("ratio", r.get("figure")), *r["spread"]
        goal = f"{r['sense']} {r['goal']:g}" if "goal" in r else ""
        series = "<br>".join(three(s) for s in (r.get("over"), r.get("under"), limit_of(r)) if s)
        rows.append(f'<tr><td>{e(r["bench"])}</td><td style="text-align:left;white-space:normal;min-width:230px">{e(r["name"])}<br><span class="dim">{e(r.get("workload") or "")}</span></td>'
                    f'<td>{digits(value)} {e(r.get("unit") or "")}<br><span class="dim">{digits(low)} – {digits(high)}</span></td><td>{e(goal)}</td>'
                    f'<td style="color:{colours[r["verdict"]]};font-weight:650">{e(r["verdict"])}</td><td class="dim" style="text-align:left;white-space:normal">{series}</td></tr>')
    return ('<table><tr><th>benchmark</th><th style="text-align:left">line</th><th>ratio, middle half</th><th>goal</th><th>verdict</th>'
            f'<th style="text-align:left">medians (from minimum to maximum)</th></tr>{"".join(rows)}</table>')


def make(data):
    m, titles = data["machine"], {r["bench"]: r["title"] for r in data["records"] if r["record"] == "begin"}
    noise = [r["noise"] for r in data["records"] if r["record"] == "begin" and "noise" in r]
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>furca bench speed</title>'
             f"<style>{page.STYLE}</style><main><h1>How fast is furca?</h1>",
             f'<p class="dim">{e(m["date"])} · {e(m["cpu"])}, {m["cpus"]} CPUs, {m["memory_gb"]} GB · Linux {e(m["kernel"])} · {e(m["system"])} · {e(m["furca"])}'
             f'{" · quick" if data["quick"] else ""} · {data["seconds"]} s · noise {min(noise, default=0):.2f} to {max(noise, default=0):.2f}</p>',
             "<p>Each line sets one thing against another that was measured in turn with it, round by round; trust the ratios more than the figures. "
             "A goal is what the project has set itself; a missed one is explained in doc/performance.md. Bands go from minimum to maximum.</p>"]
    for (bench, unit, x_unit), points in curves_of(data["records"]).items():
        if max(len(c) for c in points.values()) > 1:
            parts.append(f'<h2>{e(titles.get(bench, bench).split(": ", 1)[-1])}</h2><div class="card">{plot(points, unit, x_unit)}{ended(data["records"], bench, x_unit)}</div>')
    parts.append(f'<h2>Lines</h2><div class="card">{table(data["records"])}</div>')
    skipped = "".join(f"<p class=\"dim\">Skipped: {e(r['bench'])}, {e(r['name'])}: {e(r['reason'])}</p>" for r in data["records"]
                      if r["record"] == "skipped" and not r.get("curve"))
    return "\n".join(parts) + skipped + "</main></html>"
