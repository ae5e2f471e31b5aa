"""What the C sources can write as a refusal, for test_refusals.py, which must meet each."""
import glob
import itertools
import json
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Refusals that the sources can write and no test makes here: how the message begins, and why.
NOT_HERE = {
    "The arguments must be one map.": "the connection refuses such a message itself",
    "%s must be a map.": "the same",
    "The keys of %s must be text.": "the same as \"The arguments' names must be text\"",
    "Snapshots are switched off.": "test_operators_suggestions",
    "%u calls are waiting for this session": "test_operators_suggestions",
    "%u functions are stored already.": "4096 of them take too long",
    "The number of processes cannot be bounded here": "needs a machine without writable control groups",
    "cannot put the limits on the process": "the kernel refuses what root may do",
    "cannot put the process into its control group": "a failure of the machine",
    "A read-only call cannot run the stored function": "raised in the code of a session",
    "Stored functions call one another": "raised in the code of a session",
    "The function's session is busy": "raised in the code of a session",
    "The session waits for a capability of this client": "test_operators_suggestions",
    "the engine is stopping": "the end of the engine",
    "too much is under way to start the helper program": "a failure of the machine",
    "the helper program sent a line": "a failure of the machine",
    "Environment %llu is in use": "test_operators_suggestions",
    "there is no cell, and Landlock": "test_a_barrier_that_cannot_be_had",
    "the barrier '%s' is required": "test_a_barrier_that_cannot_be_had",
    "the process shares memory that the kernel does not let": "memfd_secret, which most kernels have switched off (test_attacks)",
    "the process shares memory that is sealed (mseal)": "mseal, which kernels before 6.10 lack (test_attacks)",
    "there is no cell, and Landlock does not keep": "test_without_mounts_a_fifo_that_is_open_keeps_its_content",
    "A copy cannot have more than its session here": "an engine that may not raise limits (test_limits)",
    "the copy could not %s": "a failure of the machine",
    "the cell has ended": "a failure of the machine",
    "cannot start a process for the copy": "a limit of the machine (the black-box case C233)",
    "cannot see this process's namespaces": "a limit of the machine: no descriptor is left for a look at /proc",
    "no descriptor is left for the cell": "a limit of the machine (test_limits)",
    "no descriptor is left for the clone": "a limit of the machine (test_limits)",
    "no descriptor is left for the process": "a limit of the machine (test_limits)",
    "cannot %s in the state directory": "a failure of the machine",
    "%.*s": "another's words passed on",
    "No code of that object's session waits": "what the client does is wrong, not how it asks (test_objects.py)",
    "The arguments hold arrays, too many handles": "the same",
    "Too many calls of that session's objects": "65 536 of them take too long",
}

FORMAT_AT = {"furca_fail": 3, "furca_fail_suggest": 4, "refuse_offer": 4, "refuse_barrier": 2}
REFUSES = ("FURCA_E_VALIDATION", "FURCA_E_LIMIT", "FURCA_E_ISOLATION", "FURCA_E_BUSY")
SOURCES = ["engine/*.c", "snapshot/barriers.c", "bridge/objects.c", "bridge/offers.c", "bridge/wire/advice.c"]


def arguments_of(text, at):
    """The arguments of the call whose parenthesis opens at `at`."""
    depth, arguments, current, i = 0, [], "", at
    while True:
        c = text[i]
        if c == '"':
            end = i + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            current += text[i:end + 1]
            i = end + 1
            continue
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return [*arguments, current.strip()]
        elif c == "," and depth == 1:
            arguments.append(current.strip())
            current, c = "", ""
        if not (c == "(" and depth == 1):
            current += c
        i += 1


def literal(argument):
    return "".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', argument))


def refusals_of_the_sources():
    """The formats of the messages."""
    found = set()
    for path in itertools.chain.from_iterable(glob.glob(os.path.join(TOP, pattern)) for pattern in SOURCES):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for match in re.finditer(r"\b(\w+)\(", text):
            name = match[1]
            if name in FORMAT_AT:
                arguments = arguments_of(text, match.end() - 1)
                if name.startswith("furca_fail") and not any(code in arguments[1] for code in REFUSES):
                    continue
                message = literal(arguments[FORMAT_AT[name]]) if len(arguments) > FORMAT_AT[name] else ""
            elif name in ("furca_refuse_value", "furca_refuse_needed"):
                _, key, what, *_ = arguments_of(text, match.end() - 1)
                if what == "NULL":
                    message = "The argument '%s' is missing." % (literal(key) or "%s")
                elif literal(key) and literal(what):
                    message = "The argument '%s' must be %s." % (literal(key), literal(what).replace("%", "%%"))
                else:
                    continue
            else:
                continue
            if message and message != "%s":
                found.add(message)
    return found


def pattern_of(message):
    parts = re.split(r"%(?:\.\*s|\.\d+s|llu|lld|zu|[sduc])", message.replace("%%", "\0"))
    return re.compile(".*".join(re.escape(part.replace("\0", "%")) for part in parts), re.S)
