"""Whether an expression provably changes nothing: then no commit is due after it. When unsure, it may.

Names, constants and operators over exact built-in values, and a few built-in functions of such values, whose evaluation runs no
code of the user's and writes to no object but counts of references.
"""

import ast
import builtins

SCALARS = (int, float, complex, bool, str, bytes, type(None), range)
CONTAINERS = (list, tuple, dict, set, frozenset)
FUNCTIONS = ("len", "print", "repr", "str", "sum", "min", "max", "sorted", "abs", "round", "bool", "int", "float", "type",
             "list", "tuple", "dict", "set", "any", "all", "isinstance", "enumerate", "zip", "range", "reversed")
MAX_ITEMS = 2000
MAX_DEPTH = 20  # of containers in one another; what contains itself is deeper
_original = {name: getattr(builtins, name) for name in FUNCTIONS}
PURE_NODES = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
              ast.Subscript, ast.Slice, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.JoinedStr,
              ast.FormattedValue, ast.Starred, ast.keyword)


def _plain(value, budget, depth=MAX_DEPTH):
    """Whether the value is made of exact built-in types; bounded by `budget` items, shared by the whole expression."""
    budget[0] -= 1
    if budget[0] < 0:
        return False
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind not in CONTAINERS or len(value) > MAX_ITEMS or depth == 0:
        return False
    if kind is dict:
        return all(_plain(key, budget, depth - 1) and _plain(item, budget, depth - 1) for key, item in value.items())
    return all(_plain(item, budget, depth - 1) for item in value)


def is_pure(expression, names):
    budget = [MAX_ITEMS]
    called = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            function = node.func
            if not isinstance(function, ast.Name) or function.id not in FUNCTIONS or function.id in names:
                return False
            if getattr(builtins, function.id, None) is not _original[function.id]:
                return False
            called.add(function)
        elif isinstance(node, ast.Name):
            if node in called:
                continue
            if node.id not in names or not _plain(names[node.id], budget):
                return False
        elif not isinstance(node, PURE_NODES):
            return False
    return True
