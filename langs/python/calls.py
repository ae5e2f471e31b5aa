"""A call from its code to its end: what C asks for before, between and after the user's code (session.c)."""

import __future__
import _signal
import ast
import faulthandler
import functools
import gc
import os
import signal
import sys
import threading
import types
import warnings

INTERRUPT = 58  # the engine's signal
SESSION, STATELESS, COPY, BRANCH = 1, 2, 3, 5
FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COROUTINE = 0x80
PURE_FUNCTIONS = frozenset(pure.FUNCTIONS)

main = sys.modules["__main__"]
_given = {"capabilities": capability.capabilities, "functions": functions.functions, "display": display.display}
_dunder = {}       # what a module's namespace must have
_origins = {}      # name -> (call that first bound it, call that last did)


class _Call:
    """The call under way, or the last one; what C does not keep of it."""

    restore = None
    refused = None  # what was wrong with the arguments, not with the code


_library = []      # sys.path as the interpreter made it
_hooks = []        # after-fork hooks of the user's own code
_call = _Call()
_mask = (INTERRUPT,)
_loop = None


def hidden(name, value):
    """Names that are not the user's."""
    return name.startswith("__") and name.endswith("__") or _given.get(name, _call) is value


_guard = guard.Guard()


def _on_interrupt(number, frame):
    state = host.armed()
    if not state:
        return
    if state == 2:
        return  # raised when the code begins
    handler = signal.getsignal(signal.SIGINT)
    if not host.attached() and callable(handler) and handler is not signal.default_int_handler:
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


def _prepare_interrupts():
    try:
        if _signal.getsignal(INTERRUPT) is not _on_interrupt:
            _signal.signal(INTERRUPT, _on_interrupt)
            host.listen()
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _mask)
    except (ValueError, OSError):
        pass


def _setup():
    """Once, in the zygote."""
    tunables = [t for t in os.environ.get("GLIBC_TUNABLES", "").split(":") if t and not t.startswith("glibc.malloc.hugetlb=")]
    os.environ.pop("GLIBC_TUNABLES", None)
    if tunables:
        os.environ["GLIBC_TUNABLES"] = ":".join(tunables)
    for name in ("FURCA_HUGE_PAGES", "FURCA_FAULT"):
        os.environ.pop(name, None)
    os.environ.setdefault("MPLBACKEND", "agg")  # no window may open, whatever DISPLAY says
    warnings.filterwarnings("ignore", message=".*is non-interactive, and thus cannot be shown.*")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _prepare_interrupts()
    streams.install()
    faulthandler.enable(file=2, all_threads=True)
    sys.argv[:] = [""]
    sys.path[:] = [entry for entry in sys.path if entry]
    _library[:] = sys.path
    sys.path.insert(0, "")
    names = main.__dict__
    for name in [name for name in names if name not in ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__")]:
        del names[name]
    import builtins
    _dunder.update(__name__="__main__", __doc__=None, __package__=None, __loader__=names.get("__loader__"), __spec__=None,
                   __builtins__=builtins)
    names.update(_dunder)
    _listen_for_hooks()
    gc.collect()


def _set_up_attached():
    """Once, in a process of its own that becomes a session: it keeps everything that it has."""
    if _signal.getsignal(INTERRUPT) not in (_signal.SIG_DFL, _signal.SIG_IGN):
        raise RuntimeError("signal %d, by which furca interrupts calls, has a handler of the program's own" % INTERRUPT)
    _prepare_interrupts()
    _library[:] = sys.path


_kept = []         # in a copy of an attached process


def settle():
    """In a copy of an attached process: from here on it is like a copy of any session. The program that the process ran does not go on."""
    # Never flushed here: what they hold is the original's to write.
    _kept.append((sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__))
    os.environ.setdefault("MPLBACKEND", "agg")
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _prepare_interrupts()
    streams.install()
    faulthandler.enable(file=2, all_threads=True)
    events = sys.modules.get("asyncio.events")
    if events is not None:
        events._set_running_loop(None)  # the loop that the program was in does not run here


lend = streams.lend
take_back = streams.take_back


def _listen_for_hooks():
    """Notes the after-fork hooks that the user's own code registers. A copy runs those, and not the libraries': they would shut
    thread pools that live on in the copy, and draw other random numbers than the session will."""
    register = os.register_at_fork

    @functools.wraps(register)
    def register_at_fork(**hooks):
        hook = hooks.get("after_in_child")
        register(**hooks)
        if getattr(hook, "__module__", None) == "__main__":
            _hooks.append(hook)

    os.register_at_fork = register_at_fork


def _run_hooks():
    for hook in _hooks:
        try:
            hook()
        except Exception as error:
            sys.stderr.write(errors.text(error).decode() + "\n")


def _prepare():
    """What the last call may have broken, before each call."""
    streams.prepare()
    streams.begin()
    display_begin()
    _prepare_interrupts()
    if sys.modules.get("__main__") is not main:
        sys.modules["__main__"] = main
    names = main.__dict__
    for name, value in _dunder.items():
        names.setdefault(name, value)
    if names.get("__name__") != "__main__":
        names["__name__"] = "__main__"
    names.update(_given)
    capability.calls_begun[0] += 1
    capability.look()


display_begin = display.begin


def _compile(tree, filename, mode, flags):
    return compile(tree, filename, mode, flags, dont_inherit=True)


def in_loop(steps):
    """The same steps, all of them in one task on the event loop where one of them awaits."""
    if not any(getattr(step, "co_flags", 0) & COROUTINE for step in steps):
        return steps

    async def task():
        value = None
        for step in steps:
            value = eval(step, main.__dict__)
            if step.co_flags & COROUTINE:
                value = await value
        return value

    return [lambda: drive(task())]


def is_pure(tree):
    with _guard:
        return pure.is_pure(tree.body, main.__dict__)


def _targets(node):
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
            yield child.id


def _stored(body):
    """Names that the statements at the top level bind for sure, even to an object that was there before."""
    names = set()
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name.partition(".")[0]) for alias in statement.names)
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            for target in getattr(statement, "targets", None) or [statement.target]:
                names.update(_targets(target))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            names.update(_targets(statement.target))
    return names


def stored(body):
    with _guard:
        return _stored(body)


_lent = {}         # name -> [stored functions under way that bind it, what it was, what they bound]


class _Stored:
    """A stored function under way: its source runs in the session's namespace; what that bound goes again when the last one
    that bound it has ended, since they nest, and coroutines overlap."""

    def __init__(self, name, source, capabilities=None):
        self.name, self.capabilities = name, capabilities
        self.filename = filename = "<function %s>" % name
        host.remember(filename, source)
        tree = _compile(source, filename, "exec", FLAGS | ast.PyCF_ONLY_AST)
        self.code = _compile(tree, filename, "exec", FLAGS)
        self.bound = _stored(tree.body)
        for key in self.bound:
            lent = _lent.setdefault(key, [0, main.__dict__.get(key, _call), []])
            lent[0] += 1
        self.enter()

    def enter(self):
        self.entered = capability.enter(self.filename, self.capabilities)

    def leave(self):
        capability.leave(self.entered)
        self.entered = None

    def target(self):
        """The function, once its source has run."""
        names = main.__dict__
        for key in self.bound:
            if key in names:
                _lent[key][2].append(names[key])
        target = names.get(self.name)
        if not callable(target):
            raise NameError("the source of the stored function %r does not define %r" % (self.name, self.name))
        return target

    def restore(self):
        names = main.__dict__
        self.leave()
        for key in self.bound:
            lent = _lent[key]
            lent[0] -= 1
            if lent[0]:
                continue
            del _lent[key]
            if any(names.get(key, _call) is value for value in lent[2]):
                if lent[1] is _call:
                    names.pop(key, None)
                else:
                    names[key] = lent[1]
        self.bound = ()


def _function_steps(function):
    """The steps of a RUN that has a function: its source, then its call."""
    _lent.clear()
    stored = _Stored(function["name"], function["source"], function.get("capabilities"))
    args = function.get("args") or []
    kwargs = function.get("kwargs") or {}

    def invoke():
        value = stored.target()(*args, **kwargs)
        return drive(value) if isinstance(value, types.CoroutineType) else value

    _call.restore = stored.restore
    return in_loop([stored.code]) + [invoke]


def _loop_runs():
    """Whether this thread is inside an event loop; one that never loaded asyncio is not."""
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


def _run_here(here, args, kwargs):
    """A stored function called from code of this session, whose namespace it is for. Other threads see its names meanwhile."""
    host.touched()
    stored = _Stored(*here)
    value = None
    try:
        pending = eval(stored.code, main.__dict__)
        if isinstance(pending, types.CoroutineType):
            drive(pending)
        value = stored.target()(*args, **kwargs)
        if not isinstance(value, types.CoroutineType):
            return value
        if not _loop_runs():
            return drive(value)
    finally:
        if not isinstance(value, types.CoroutineType) or not _loop_runs():
            stored.restore()
    stored.leave()  # until it is awaited, the caller's code goes on
    return _restored(value, stored)


async def _restored(coroutine, stored):
    stored.enter()
    try:
        return await coroutine
    finally:
        stored.restore()


capability.run_here = _run_here


def begin(cwd, env, function):
    """Before the user's code, where something is out of order or asked for. The steps of a stored function, or None: C makes the
    steps of code. Raises what the call is to report."""
    with _guard:
        _call.restore = _call.refused = None
        _prepare()
        try:
            if cwd:
                os.chdir(cwd)
        except OSError as error:
            _call.refused = error
            raise
        for name, value in (env or {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return None if function is None else _function_steps(function)


def _import_asyncio():
    """asyncio, loaded where a session first needs it: in every clone it would cost a quarter of a millisecond. From the library's
    own places, since the working directory may hold files of the same names."""
    path = sys.path[:]
    try:
        sys.path[:] = _library
        import asyncio
        import selectors
    finally:
        sys.path[:] = path
    return asyncio, selectors


def drive(coroutine):
    """Runs a coroutine on the session's event loop, which lives from the first await to the session's end."""
    global _loop
    asyncio, selectors = _import_asyncio()
    if _loop is None or _loop.is_closed():
        # poll keeps no state in the kernel, so a copy's loop cannot disturb its session's.
        _loop = asyncio.SelectorEventLoop(selectors.PollSelector())
    if not host.attached():
        asyncio.set_event_loop(_loop)
    task = _loop.create_task(coroutine)
    try:
        return _loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            try:
                _loop.run_until_complete(task)
            except BaseException:
                pass
        raise
    finally:
        if task.done() and not task.cancelled():
            task.exception()


def describe(value, max_text):
    """Text and rich forms of the value, figures: still the user's time, since it runs the user's code."""
    shown, left = None, 0
    if value is not None:
        shown, left = text.of(value, max_text)
        display.value(value)
    display.figures()
    return shown, left


def _status(error):
    """Exit status of a SystemExit, and its text where that is not a number."""
    code = error.code
    if code is None:
        return 0, None
    if isinstance(code, int):
        return int(code), None
    try:
        return 1, str(code)
    except Exception:
        return 1, "SystemExit"


def _ended(error):
    """(how, exit code, error text) of a call."""
    if error is None:
        return "ok", 0, None
    if error is _call.refused:
        return "refused", 1, ("cannot change to the directory '%s': %s" % (error.filename, error.strerror)).encode("utf-8", "backslashreplace")
    if isinstance(error, SystemExit):
        status, said = _status(error)
        if said is not None and sys.stderr is not None:
            try:
                sys.stderr.write(said + "\n")
            except Exception:
                pass
        status = status if -(1 << 31) <= status < 1 << 31 else 1
        return "exit", status, b"SystemExit: %d" % status if status else None
    if isinstance(error, KeyboardInterrupt) and host.interrupted():
        return "interrupted", 1, errors.text(error)
    return "exception", 1, errors.text(error)


def _safe(name):
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _suggestion(error):
    """What to change, where the error alone does not say it to somebody who cannot see the session. UTF-8 bytes or None."""
    said = None
    if error is _call.refused:
        said = "Remove cwd, or give the path of a directory that exists."
    elif isinstance(error, SyntaxError) and isinstance(error.text, str) and error.text.lstrip()[:1] in ("!", "%"):
        said = "This is plain Python without IPython's ! and %: use language='bash', or the subprocess module."
    elif isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] not in sys.modules:
        said = ("Declare an environment with create_env whose dependencies bring %s, and pass its venv_id."
                % _safe(error.name.partition(".")[0]))
    elif isinstance(error, EOFError) and "EOF when reading a line" in str(error):
        said = "Nobody types here: standard input is empty. Put the values into the code."
    return said.encode() if said else None


def finish(error, shown):
    """The call's end as a tuple for C."""
    with _guard:
        return _finish(error, shown)


def _finish(error, shown):
    restored = _call.restore is not None
    if restored:
        _call.restore()
        _call.restore = None
    how, status, said = _ended(error)
    if error is not None:
        try:
            display.figures()
        except BaseException:
            pass
    streams.flush_all()
    capability.give_back()
    displayed = display.end()
    data, left = shown or (None, 0)
    suggestion = None if error is None else _suggestion(error)
    _call.refused = None
    raised = errors.raised(error) if error is not None and restored else None
    return how, status, said, suggestion, raised, data, left, displayed


def unread(error):
    """What the caller of a stored function is told whose arguments could not be read."""
    with _guard:
        return dict(errors.raised(error), frames=_frames.versions())


def why(error):
    """Why a value is not sent, as UTF-8 bytes."""
    with _guard:
        return errors.raised(error)["message"].encode()


def end_child(error):
    """The status of a forked child that ran off the end of the code."""
    status = 0
    if isinstance(error, SystemExit):
        status, said = _status(error)
        if said:
            sys.stderr.write(said + "\n")
    elif error is not None:
        sys.stderr.write(errors.text(error).decode() + "\n")
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    streams.flush_all()
    return status & 0xff


def before_forked(forked):
    """In a clone made by libc's fork, before the interpreter's handlers reseed the generator."""
    random = sys.modules.get("random")
    return random.getstate() if forked and random else None


def clone_begins():
    """Where a child of the session has ended, and has not been waited for."""
    with _guard:
        try:
            children.note()
        except OSError:
            pass


def promoted():
    """A snapshot that takes its session's place."""
    with _guard:
        children.adopt()
        capability.promoted()


def cloned(role, forked, state):
    children.adopt()
    capability.cloned()
    random = sys.modules.get("random")
    if state is not None:
        random.setstate(state)
    if role in (SESSION, STATELESS, BRANCH):
        # Two sessions must not draw the same numbers because they come from one process.
        for module in (random, sys.modules.get("numpy.random")):
            if module is not None:
                module.seed()
        set_id = getattr(threading.main_thread(), "_set_native_id", None)
        if set_id:
            set_id()
    if role == COPY:
        if not forked:
            _run_hooks()  # libc's fork has run all of them
        gc.freeze()  # a full collection would write to every object of the session


def inspect(detail, name):
    return inspection.state(main.__dict__, hidden, _origins, detail or "names", name)


if host.attached():
    _set_up_attached()
else:
    _setup()
