"""Whether a call in a coroutine is awaited there: `x = await c.f()`, `await gather(c.f(), c.g())`, `t = c.f()` with `await t` later.

Decided by the text of the code, once for each place of a call: by the instruction behind the call where that says it, else by
the syntax tree of its source. What cannot be told is not awaited, so that plain code in a coroutine gets plain values.
"""

import ast
import linecache

ASYNC_CODE = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, asynchronous generator
TAKES_AWAITABLES = {"gather", "wait", "wait_for", "shield", "create_task", "ensure_future", "as_completed", "timeout",
                    "run_until_complete", "run_coroutine_threadsafe"}
INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>")

_known = {}


def _trees():
    return _known.setdefault("trees", {})


def _tree(filename):
    """The file's syntax tree with `furca_parent` on each node, or None."""
    lines = linecache.getlines(filename)
    text = "".join(lines)
    cached = _trees().get(filename)
    if cached is not None and cached[0] == text:
        return cached[1]
    try:
        tree = ast.parse(text)
    except Exception:
        return None
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.furca_parent = node
    if len(_trees()) > 64:
        _trees().clear()
    _trees()[filename] = (text, tree)
    return tree


def _position(frame):
    """(line, end line, column, end column) of the instruction; columns are None before 3.11."""
    code = frame.f_code
    positions = getattr(code, "co_positions", None)
    if positions:
        import itertools
        for position in itertools.islice(positions(), frame.f_lasti // 2, None):
            return position
    return frame.f_lineno, None, None, None


def _calls(tree, position):
    line, end, column, end_column = position
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.lineno <= line <= node.end_lineno:
            continue
        if column is None or (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (line, end, column, end_column):
            found.append(node)
    return found


def _scope(node):
    while node is not None and not isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef, ast.Lambda, ast.Module)):
        node = getattr(node, "furca_parent", None)
    return node


def _callee(call):
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _consumed(node):
    """Whether the expression's value ends in an await: climbs to the statement."""
    parent = getattr(node, "furca_parent", None)
    while parent is not None:
        if isinstance(parent, ast.Await):
            return True
        if isinstance(parent, ast.Call):
            if node is parent.func:
                return False
            if _callee(parent) in TAKES_AWAITABLES:
                return True
            return False
        if isinstance(parent, (ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.FormattedValue)):
            return False
        if isinstance(parent, ast.comprehension):
            return False
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            return _later(parent)
        if isinstance(parent, ast.stmt):
            return False
        node, parent = parent, getattr(parent, "furca_parent", None)
    return False


def _later(assignment):
    """Whether a name that the value is bound to is awaited in the same function, or handed to gather and the like."""
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    scope = _scope(assignment)
    if not names or scope is None:
        return False
    for node in ast.walk(scope):
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Name) and node.value.id in names:
            return True
        if isinstance(node, ast.Call) and _callee(node) in TAKES_AWAITABLES:
            for argument in node.args:
                argument = argument.value if isinstance(argument, ast.Starred) else argument
                if isinstance(argument, ast.Name) and argument.id in names:
                    return True
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Name) and node.iter.id in names:
            target = node.target
            if isinstance(target, ast.Name) and _awaits_name(scope, target.id):
                return True
    return False


def _awaits_name(scope, name):
    return any(isinstance(node, ast.Await) and isinstance(node.value, ast.Name) and node.value.id == name
               for node in ast.walk(scope))


def _in_coroutine(frame):
    while frame is not None and frame.f_code.co_name in INNER:
        frame = frame.f_back
    if frame is None:
        return False
    code = frame.f_code
    return code.co_flags & ASYNC_CODE or code.co_name == "<module>" and code.co_filename.startswith(errors.USER)


def is_awaited(frame):
    """Whether the call that `frame` is making now is awaited by its own code."""
    if not _in_coroutine(frame):
        return False
    key = (frame.f_code, frame.f_lasti)
    answer = _known.get(key)
    if answer is None:
        answer = False
        try:
            tree = _tree(frame.f_code.co_filename)
            if tree is not None:
                answer = any(_consumed(call) for call in _calls(tree, _position(frame)))
        except Exception:
            answer = False
        if len(_known) > 4096:
            _known.clear()
        _known[key] = answer
    return answer
