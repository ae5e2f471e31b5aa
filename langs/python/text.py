"""The text of a value: its repr, bounded in size and, for large plain containers, in work."""

WIDE = 100_000  # a plain container with more items is shown by its ends


def _ends(value, limit):
    """The ends of a long plain list, tuple, set or dict as text, how many items are between them, and roughly how many bytes these have."""
    import itertools
    n = len(value)
    keep = max(min(limit // 8, n // 2, 20000), 1)
    if isinstance(value, dict):
        head = ", ".join("%r: %r" % pair for pair in itertools.islice(value.items(), keep))
        tail = ""
    elif isinstance(value, (set, frozenset)):
        head = ", ".join(map(repr, itertools.islice(value, keep)))
        tail = ""
    else:
        head = ", ".join(map(repr, value[:keep]))
        tail = ", ".join(map(repr, value[n - keep // 3:])) if keep >= 3 else ""
    items = n - keep - (keep // 3 if tail else 0)
    brackets = {list: "[]", tuple: "()", dict: "{}", set: "{}"}.get(type(value), "()")
    return brackets[0] + head, tail + brackets[1], items, (len(head) + 2) // keep * items


def of(value, limit):
    """(UTF-8 bytes, bytes left out) of repr(value), cut at one place. Raises what the value's __repr__ raises."""
    kind = type(value)
    if kind in (list, tuple, dict, set, frozenset) and len(value) > WIDE:
        head, tail, items, left = _ends(value, limit)
        tail = ", " + tail if tail[1:] else tail
        data, cut = errors.cut("%s, ... %d items left out ...%s" % (head, items, tail), limit)
        return errors.cut(head + tail, limit, left) if cut else (data, left)
    if kind in (str, bytes, bytearray) and len(value) > 4 * limit:
        return errors.cut(repr(value[:limit] + value[-limit:]), limit, len(value) - 2 * limit)
    return errors.cut(repr(value), limit)
