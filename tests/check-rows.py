#!/usr/bin/env python3
"""Each row of doc/bridge.md's table of what holds names its tests, one in Python and one in bash, and they exist and run code in that language. A row
that bash cannot say gives the reason in the test's place."""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT = "test_capabilities"
RUNS = {"Python": r"python\(|language=\"python\"|\.run\(|\.read\(", "bash": r"bash\(|language=\"bash\""}


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def test_source(name):
    """A test's text by "test_name" or "file::test_name"; None where there is none."""
    file, _, test = name.rpartition("::")
    path = "tests/e2e/%s.py" % (file or DEFAULT)
    if not os.path.exists(os.path.join(TOP, path)):
        return None
    found = re.search(r"^def %s\(.*?(?=^\S|\Z)" % re.escape(test), read(path), re.M | re.S)
    return found and found.group()


def problems():
    table = read("doc/bridge.md").partition("| row | what |")[2].partition("\n\n")[0].splitlines()[2:]
    if len(table) < 15:
        yield "the table was not found"
    for line in table:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 4:
            yield "no four columns: %s" % line[:60]
            continue
        for language, cell in zip(("Python", "bash"), cells[2:]):
            name = re.fullmatch(r"`(test_[\w:]+)`", cell)
            if not name and (language == "Python" or len(cell) < 10):
                yield "row '%s' names no test in %s" % (cells[0], language)
            if name and not re.search(RUNS[language], test_source(name.group(1)) or ""):
                yield "row '%s': %s is no test that runs %s" % (cells[0], name.group(1), language)


found = list(problems())
print("\n".join(found) or "every row has its tests")
sys.exit(1 if found else 0)
