"""What a call shows besides text: display(x), the rich forms of its value, figures."""

import binascii
import sys

MAX_BYTES = 32 << 20
MAX_TEXT = 1 << 20
METHODS = (
    ("text/html", "_repr_html_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("image/svg+xml", "_repr_svg_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/pdf", "_repr_pdf_"),
)
PLAIN = frozenset((int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, type(None)))

_shown = []
_size = 0


def begin():
    global _size
    _shown.clear()
    _size = 0


def end():
    """The call's list, or None."""
    shown = list(_shown)
    begin()
    return shown or None


def _data(mime, value):
    """A rich form as it crosses: text as str, binary kinds as bytes. None where it is neither."""
    if isinstance(value, tuple) and value:
        value = value[0]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        if mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf":
            try:
                return binascii.a2b_base64(value)
            except Exception:
                return None
        return value.encode("utf-8", "backslashreplace").decode()
    if mime in ("application/json", tables.MIME) and isinstance(value, (dict, list)):
        try:
            host.pack(value)
            return value
        except Exception:
            return None
    return None


def _method(value, name):
    """Looked up on the type, so that objects which answer to every attribute do not seem rich."""
    if isinstance(value, type):
        return None
    method = getattr(type(value), name, None)
    return method if callable(method) else None


def bundle(value):
    """The rich forms of a value, {} if there are none. A form that cannot be made is left out."""
    forms = {}
    if type(value) in PLAIN:
        return forms
    method = _method(value, "_repr_mimebundle_")
    if method:
        try:
            made = method(value)
            made = made[0] if isinstance(made, tuple) else made
            for mime, data in (made or {}).items():
                data = _data(mime, data)
                if data is not None:
                    forms[str(mime)] = data
        except Exception:
            pass
    for mime, name in METHODS:
        method = _method(value, name) if mime not in forms else None
        if method:
            try:
                data = _data(mime, method(value))
            except Exception:
                data = None
            if data is not None:
                forms[mime] = data
    if not forms and _is_figure(value):
        forms["image/png"] = _png(value)
    try:
        table = tables.of(value)
    except Exception:
        table = None
    if table is not None:
        forms.setdefault(tables.MIME, table)
    return forms


def _cost(forms):
    return sum(len(data if isinstance(data, (str, bytes)) else host.pack(data)) for data in forms.values())


def add(forms):
    """Appends a bundle, unless the call has shown too much already; then says so once."""
    global _size
    cost = _cost(forms)
    if _size + cost > MAX_BYTES:
        if _size <= MAX_BYTES:
            _shown.append({"text/plain": "<left out: %d bytes would pass the limit of %d for one call>" % (cost, MAX_BYTES),
                           "at": streams.written()})
            _size = MAX_BYTES + 1
        return
    _size += cost
    forms["at"] = streams.written()
    _shown.append(forms)


def _plain(value):
    if isinstance(value, str):
        return value
    try:
        text = repr(value)
    except Exception as error:
        text = "<%s object; its repr failed: %s>" % (type(value).__name__, type(error).__name__)
    return text


def display(*values, metadata=None, transient=None, raw=False, **ignored):
    """Shows values beside the output: images, HTML, figures, whatever has a rich form, else text."""
    streams.flush_all()
    for value in values:
        if raw and isinstance(value, dict):
            forms = {str(mime): data for mime, data in ((m, _data(str(m), d)) for m, d in value.items()) if data is not None}
        else:
            forms = bundle(value)
        if "text/plain" not in forms:
            forms["text/plain"] = errors.cut(_plain(value), MAX_TEXT)[0].decode()
        add(forms)
        if _is_figure(value):
            _close(value)


def value(result):
    """Shows the rich forms of a call's value; its text is the call's result_text."""
    forms = bundle(result)
    if forms:
        streams.flush_all()
        add(forms)
        if _is_figure(result):
            _close(result)


def _is_figure(value):
    figure = sys.modules.get("matplotlib.figure")
    kind = getattr(figure, "Figure", None)
    return isinstance(kind, type) and isinstance(value, kind)


def _png(figure):
    import io
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def _close(figure):
    pyplot = sys.modules.get("matplotlib.pyplot")
    try:
        pyplot.close(figure)
    except Exception:
        pass


def figures():
    """Shows what is open in pyplot at the end of a call, and closes it."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        numbers = list(pyplot.get_fignums())
    except Exception:
        return
    for number in numbers:
        try:
            figure = pyplot.figure(number)
            if figure.axes or figure.texts or figure.images:
                streams.flush_all()
                add({"image/png": _png(figure), "text/plain": repr(figure)})
        except Exception as error:
            sys.stderr.write("figure %s cannot be shown: %s: %s\n" % (number, type(error).__name__, error))
        try:
            pyplot.close(number)
        except Exception:
            pass


display.__module__ = "builtins"
