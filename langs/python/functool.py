"""Checks a stored function's source before it is kept: run by the interpreter that the function is for, Python 3.9 or later.

It reads one request, a line of JSON {"language", "name", "source"}, from descriptor 3 and answers there with one line: {"result":
{"doc": text or null}} or {"error": text, "suggestion": text, "type": "validation"}. Nothing of the source is run.
"""
import ast
import json
import os
import re
import subprocess
import sys
import warnings

CHANNEL = 3


def refusal(text, suggestion):
    return {"error": text[:480], "suggestion": suggestion[:480], "type": "validation"}


def correct_line(source, line, column=None):
    """The end of a text that wants to go on is told as a line behind it."""
    line = max(1, min(line, len(source.splitlines())))
    return "Correct line %d of source%s, or remove line %d of source." % (line, " (column %d)" % column if column else "", line)


def bound_names(body):
    """Names that statements at the top level may bind."""
    names = []
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.append(node.name)
            elif isinstance(node, ast.alias):
                names.append(node.asname or node.name.partition(".")[0])
    return names


def check_python(name, source):
    version = "Python %d.%d" % sys.version_info[:2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            compile(tree, "<function %s>" % name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        text = (error.text or "").strip()
        return refusal("The source is not valid %s: %s (line %s%s)" % (version, error.msg, error.lineno or 0, ", '%s'" % text[:120] if text else ""),
                       correct_line(source, error.lineno or 1, error.offset))
    except (ValueError, RecursionError, MemoryError) as error:
        return refusal("The source cannot be compiled by %s: %s" % (version, error), "Store text that %s can compile, for example source='def %s(): pass'." % (version, name))
    names = bound_names(tree.body)
    if name not in names:
        defined = [one for one in names if not one.startswith("_")]
        return refusal("The source does not define '%s'." % name,
                       "Use name='%s', which the source defines, or define '%s' at its top level." % (defined[0], name) if defined else
                       "Define it at the top level, for example source='def %s(): pass'." % name)
    doc = next((ast.get_docstring(one) for one in reversed(tree.body)
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and one.name == name), None)
    return {"result": {"doc": doc}}


def check_bash(name, source):
    checked = subprocess.run(["bash", "-n"], input=source.encode("utf-8", "surrogatepass"), stdin=None, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, env=dict(os.environ, LC_ALL="C", BASH_ENV=""))
    if checked.returncode == 0:
        comment = re.match(r"(?:#![^\n]*\n)?((?:[ \t]*#[^\n]*\n)+)", source)
        doc = "\n".join(line.strip()[1:].strip() for line in comment[1].splitlines()) if comment else None
        return {"result": {"doc": doc}}
    lines = [re.sub(r"^bash: ", "", line) for line in checked.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    where = re.match(r"line (\d+)", lines[0]) if lines else None
    return refusal("The source is not valid bash: %s" % "; ".join(lines)[:400],
                   correct_line(source, int(where[1]) if where else 1))


def main():
    os.set_inheritable(CHANNEL, False)
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(CHANNEL, 1 << 16)
        if not chunk:
            return
        data += chunk
    request = json.loads(data)
    check = check_bash if request["language"] == "bash" else check_python
    data = json.dumps(check(request["name"], request["source"])).encode() + b"\n"
    while data:
        data = data[os.write(CHANNEL, data):]


if __name__ == "__main__":
    main()
    os._exit(0)
