"""The vocabulary of bench/bench.h for benchmarks written in Python: series, lines, verdicts, records. See bench/README.md."""
import json
import os
import statistics
import time

import machine

NOISE_MAX = 1.5
QUICK = os.environ.get("FURCA_BENCH_QUICK", "0") not in ("", "0")


class Bench:
    """One benchmark: says its machine, then series and lines; `status` is the exit status they come to."""

    def __init__(self, name, title, pin=True, timed=True):
        self.name, self.status, self.timed = name, 0, timed  # what is not timed may be concluded on a noisy machine
        self.cpu = -1
        self.before = os.sched_getaffinity(0)
        if pin:
            self.cpu = max(self.before)
            os.sched_setaffinity(0, {self.cpu})
        self.noise = noise()
        load = open("/proc/loadavg").read().strip()
        where = "pinned to CPU %d" % self.cpu if pin else "on all CPUs"
        print("%s\n%s, load %s, noise %.2f%s" % (title, where, load, self.noise, " (too much to conclude)" if self.noise > NOISE_MAX else ""), flush=True)
        self.record("begin", title=title, cpu=machine.first("/proc/cpuinfo", "model name"), kernel=os.uname().release, load=load,
                    huge_pages=open("/sys/kernel/mm/transparent_hugepage/enabled").read().strip(), cpus=os.cpu_count(), pinned=self.cpu,
                    noise=round(self.noise, 3), quick=QUICK)

    def end(self):
        os.sched_setaffinity(0, self.before)
        return self.status

    def record(self, kind, **fields):
        path = os.environ.get("FURCA_BENCH_JSON")
        if path:
            with open(path, "a") as file:
                file.write(json.dumps({"record": kind, "bench": self.name, **fields}) + "\n")

    def skip(self, name, reason, **where):
        """What is not measured, and why. `where`: curve, x and x_unit, for a growth curve that ends before that point."""
        print("  %s: skipped, %s" % (name, reason), flush=True)
        self.record("skipped", name=name, reason=reason, **where)

    def rounds(self, tasks, rounds, warm_up=2, between=0.0):
        """Runs (series, function) in turn, round by round; a function returns the figure as a float; of others the time is taken, in us.
        A peer that raises is left out from then on: its series is empty, and a record says why."""
        for i in range(-warm_up, rounds):
            for series, run in tasks:
                if series.failed:
                    continue
                if between:
                    time.sleep(between)
                start = time.perf_counter()
                try:
                    value = run()
                except Exception as e:  # a peer fails in its own ways
                    if series.role == "furca":
                        raise
                    series.failed, series.values = "%s: %s" % (type(e).__name__, e), []
                    continue
                took = time.perf_counter() - start
                series.seconds = max(series.seconds, took)
                if i >= 0:
                    series.values.append(value if isinstance(value, float) else took * 1e6)
        for series, _ in tasks:
            if not series.failed:
                self.print(series)
            elif series.curve:
                self.skip(series.name, series.failed, curve=series.curve, x=series.x, x_unit=series.x_unit)
            else:
                self.skip(series.name, series.failed)

    def print(self, series):
        print("  %-40s min %9.1f  median %9.1f  max %9.1f %s  (%d rounds)" % (series.name, *series.three(), series.unit, len(series.values)), flush=True)
        self.record("series", **series.fields())

    def say(self, name, workload, over, under=None, goal=None, at_most=True, limit=None):
        """A line with its verdict: PASS, MISS, NOISY (with or without a goal), or - without one."""
        each = [a / b for a, b in zip(over.values, under.values)] if under else over.values  # none where one of the two has failed
        if not each:
            return self.skip(name, "nothing was measured")
        value = over.median() / under.median() if under else over.median()
        low, high = quartile(each, 25), quartile(each, 75)
        steady = (self.noise <= NOISE_MAX or not self.timed) and not (under and quartile(under.values, 75) > 2 * quartile(under.values, 25))
        if not under and goal is not None and low < goal < high and high - low > goal:
            steady = False
        met = goal is None or (value <= goal if at_most else value >= goal)
        verdict = "NOISY" if not steady else "-" if goal is None else "PASS" if met else "MISS"
        told = ", %s %.1f %s" % (limit.name, limit.median(), limit.unit) if limit and limit.values else ""
        told += ", goal %s %g: %s" % ("at most" if at_most else "at least", goal, verdict) if goal is not None else ""
        told += " (nothing can be said)" if verdict == "NOISY" else ""
        print("  %s: %.2f%s (middle half of the rounds %.2f to %.2f)%s" % (name, value, "" if under else " " + over.unit, low, high, told), flush=True)
        fields = {"name": name, "workload": workload, ("ratio" if under else "figure"): float("%.4g" % value),
                  "spread": [float("%.4g" % low), float("%.4g" % high)], "verdict": verdict, "over": over.fields()}
        if not under:
            fields["unit"] = over.unit
        if goal is not None:
            fields.update(sense="at most" if at_most else "at least", goal=goal)
        for key, series in (("under", under), ("limit", limit)):
            if series and series.values:
                fields[key] = series.fields()
        self.record("line", **fields)
        one = {"MISS": 1, "NOISY": 77}.get(verdict, 0)
        if one == 1 or self.status == 0:
            self.status = one
        return None


class Series:
    def __init__(self, name, unit="us", role="furca", curve=None, x=None, x_unit=None):
        self.name, self.unit, self.role, self.curve, self.x, self.x_unit = name, unit, role, curve, x, x_unit
        self.values, self.failed, self.seconds = [], None, 0.0  # seconds: the longest round, with what is not counted

    def median(self):
        return statistics.median(self.values)

    def three(self):
        return (min(self.values), self.median(), max(self.values)) if self.values else (0, 0, 0)

    def fields(self):
        low, middle, high = self.three()
        fields = {"name": self.name, "unit": self.unit, "role": self.role, "rounds": len(self.values), "min": round(low, 3),
                  "median": round(middle, 3), "max": round(high, 3)}
        if self.curve:
            fields.update(curve=self.curve, x=self.x, x_unit=self.x_unit)
        return fields


def quartile(values, p):
    ordered = sorted(values)
    return ordered[int(p / 100 * (len(ordered) - 1) + 0.5)]


def noise():
    """As look_at_noise() of bench.c."""
    def spin():
        start = time.perf_counter()
        sum(range(20000))
        return time.perf_counter() - start

    times = [spin() for _ in range(200)]
    return quartile(times, 75) / min(times)
