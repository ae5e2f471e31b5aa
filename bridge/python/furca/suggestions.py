"""What a refusal's `suggestion` says, applied by a program. The grammar is doc/protocol.md's, "Suggestions".

    answer = engine.call("execute", **arguments)
    if answer.get("suggestion"):
        corrected = furca.suggestions.correct(engine.call, arguments, answer["suggestion"])

A model reads the same text; this is for clients without one, and it is how the tests hold that every suggestion does what it says.
"""
from __future__ import annotations

import ast
import copy
import json
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_VALUE = r"%s|\[\]|\{\}|-?\d+(?:\.\d+)?|true|false|null" % _TEXT
_KEY = r"[A-Za-z_]\w*(?:\.\w+)*"
_SET = re.compile(r"(?:use |and )?(%s)=(%s)(?!\w)" % (_KEY, _VALUE))
_RENAME = re.compile(r"rename (%s) to (%s)" % (_TEXT, _TEXT))
_CUT = re.compile(r"(?:remove )?(%s) from (%s)" % (_TEXT, _KEY))
_REMOVE = re.compile(r"(?:remove )?(%s|%s)" % (_TEXT, _KEY))
_CALL = re.compile(r"call (\w+)(?: with )?")
_ITS = re.compile(r"use its (\w+)")
_LINE = re.compile(r"remove line (\d+) of (%s)" % _KEY)
_NO_TEXT = "remove every argument whose name is no text"


class Change(NamedTuple):
    """One step: ("set", key, value), ("remove", key, None), ("rename", old, new), ("cut", key, text), ("line", key, number), ("its", key, None),
    ("call", method, arguments) or ("remove unnamed", "", None)."""

    kind: str
    key: str
    value: Any


def _literal(text: str) -> Any:
    return ast.literal_eval(text) if text[0] in "'\"" else json.loads(text)


def _split(text: str, separator: str) -> List[str]:
    """Splits outside of quotes."""
    parts, at = [], 0
    for match in re.finditer(r"%s|(?P<cut>%s)" % (_TEXT, separator), text):
        if match["cut"] is not None:
            parts.append(text[at:match.start()])
            at = match.end()
    return parts + [text[at:]]


def _without_asides(text: str) -> str:
    """Text in parentheses, outside of quotes, is for people."""
    return re.sub(r"(%s)|\s*\([^()]*\)" % _TEXT, lambda match: match[1] or "", text)


def _alternative(text: str, arguments: Mapping[str, Any]) -> Optional[List[Change]]:
    """The changes that one alternative names, or None where it leaves something to be decided."""
    example = text.rfind("for example ")
    text = text[example + len("for example "):] if example >= 0 else text
    text = text.strip()
    text = text[:1].lower() + text[1:]
    changes: List[Change] = []
    removing, calling = False, None
    for clause in _split(text, r" and "):
        clause = clause.strip()
        called = _CALL.match(clause)
        if called:
            calling = {}
            changes.append(Change("call", called[1], calling))
            clause = clause[called.end():]
            if not clause or clause.startswith("first"):
                calling = None
                continue
        match = _ITS.match(clause)
        if match:
            changes.append(Change("its", match[1], None))
            continue
        match = _SET.match(clause)
        if match and not (clause.startswith("remove ")):
            if calling is not None:
                calling[match[1]] = _literal(match[2])
                if re.match(r"\s+first\b", clause[match.end():]):
                    calling = None
            else:
                changes.append(Change("set", match[1], _literal(match[2])))
            removing = False
            continue
        if clause.startswith(_NO_TEXT):
            changes.append(Change("remove unnamed", "", None))
            continue
        match = _LINE.match(clause)
        if match:
            changes.append(Change("line", match[2], int(match[1])))
            continue
        match = _RENAME.match(clause)
        if match:
            changes.append(Change("rename", _literal(match[1]), _literal(match[2])))
            continue
        removing = removing or clause.startswith("remove ")
        match = _CUT.match(clause) if removing else None
        if match:
            changes.append(Change("cut", match[2], _literal(match[1])))
            continue
        match = _REMOVE.match(clause) if removing else None
        if match:
            changes.append(Change("remove", _literal(match[1]) if match[1][0] in "'\"" else match[1], None))
            continue
        return None
    if calling is not None:
        return None
    if any(change.kind in ("call", "its") for change in changes):
        return changes
    return changes if changes and apply(changes, arguments) != dict(arguments) else None


def read(suggestion: str, arguments: Mapping[str, Any]) -> Optional[List[Change]]:
    """The changes of the first alternative that is complete; None where the suggestion leaves a choice that only the caller can make."""
    for sentence in _split(_without_asides(suggestion), r"[.;:](?=\s|$)"):
        for alternative in _split(sentence, r", or (?:for )?"):
            changes = _alternative(alternative.split(", which")[0], arguments)
            if changes:
                return changes
    return None


def _holder(arguments: Any, path: str) -> Tuple[Any, Any]:
    """What holds the last word of a dotted path, made where it is missing."""
    if isinstance(arguments, dict) and path in arguments:
        return arguments, path
    *above, last = path.split(".")
    for word in above:
        key: Any = int(word) if isinstance(arguments, list) else word
        if isinstance(arguments, dict):
            arguments.setdefault(key, {})
        arguments = arguments[key]
    return arguments, int(last) if isinstance(arguments, list) else last


def _remove(value: Any, key: str) -> bool:
    """Removes a key, or a word of a list, wherever it stands; the topmost first."""
    if isinstance(value, dict):
        if key in value:
            del value[key]
            return True
        return any(_remove(item, key) for item in value.values())
    if isinstance(value, list):
        if key in value:
            value.remove(key)
            return True
        return any(_remove(item, key) for item in value)
    return False


def _rename(value: Any, old: str, new: str) -> bool:
    if isinstance(value, dict):
        if old in value:
            value[new] = value.pop(old)
            return True
        return any(_rename(item, old, new) for item in value.values())
    if isinstance(value, list):
        if old in value:
            value[value.index(old)] = new
            return True
        return any(_rename(item, old, new) for item in value)
    return False


def apply(changes: List[Change], arguments: Mapping[str, Any], answers: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """The arguments with the changes made; `answers` is what the calls before gave, by key."""
    out: Dict[str, Any] = copy.deepcopy(dict(arguments))
    for kind, key, value in changes:
        if kind == "set":
            holder, last = _holder(out, key)
            holder[last] = value
        elif kind == "its":
            out[key] = (answers or {})[key]
        elif kind == "rename":
            _rename(out, key, value)
        elif kind == "cut":
            holder, last = _holder(out, key)
            there = holder.get(last) if isinstance(holder, dict) else None
            if isinstance(there, str):
                holder[last] = there.replace(value, "")
            elif isinstance(there, list):
                holder[last] = [item for item in there if item != value]
        elif kind == "line":
            lines = str(out[key]).splitlines(True)
            out[key] = "".join(lines[:value - 1] + lines[value:])
        elif kind == "remove unnamed":
            out = {name: item for name, item in out.items() if isinstance(name, str)}
        elif kind == "remove" and "." in key and key not in out:
            holder, last = _holder(out, key)
            if isinstance(holder, dict):
                holder.pop(last, None)
        elif kind == "remove":
            _remove(out, key)
    return out


def correct(call: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any], suggestion: str) -> Optional[Dict[str, Any]]:
    """Makes the calls that the suggestion wants first, by `call(method, **arguments)`, and returns the corrected arguments.

    None where the suggestion leaves a choice that only the caller can make.
    """
    changes = read(suggestion, arguments)
    if changes is None:
        return None
    answers: Dict[str, Any] = {}
    for kind, method, given in changes:
        if kind == "call":
            answer = call(method, **given)
            answers.update(answer)
            answers.update(answer.get("session") or {})
    return apply(changes, arguments, answers)
