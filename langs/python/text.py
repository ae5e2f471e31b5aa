"""The text of a value: its repr, bounded in size and, for large plain containers, in work."""

WIDE = 100_000  # a plain container with more items is shown by its ends


def _ends(value, limit):
    """repr of a long plain list, tuple, set or dict by its ends, and roughly how many bytes that leaves out."""
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
    shown = keep + (keep // 3 if tail else 0)
    left = (len(head) + 2) // keep * (n - shown)
    brackets = {list: "[]", tuple: "()", dict: "{}", set: "{}"}.get(type(value), "()")
    middle = ", ... %d items left out ..." % (n - shown)
    return brackets[0] + head + middle + (", " + tail if tail else "") + brackets[1], left


def of(value, limit):
    """(UTF-8 bytes, bytes left out) of repr(value). Raises what the value's __repr__ raises."""
    kind = type(value)
    if kind in (list, tuple, dict, set, frozenset) and len(value) > WIDE:
        whole, left = _ends(value, limit)
        data, more = errors.cut(whole, limit)
        return data, left + more
    if kind in (str, bytes, bytearray) and len(value) > 4 * limit:
        whole = repr(value[:limit]) + "..."
        return errors.cut(whole, limit)[0], len(value) - limit
    return errors.cut(repr(value), limit)
