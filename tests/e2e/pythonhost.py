"""furca-python without an engine: how it is started, a session of it as fixtures, and code run in it."""
import os
import time

import pytest

from hostlib import SESSION, Host, Surface, libexec

PROGRAM = os.path.join(libexec(), "furca-python")
MODULE = os.path.join(libexec(), "_furca_host.abi3.so")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

needs_python = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="furca-python is not built")

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("FURCA")}


def fail(text):
    raise KeyError(text)


def slow(i):
    time.sleep(0.5)
    return i


CAPABILITIES = {
    "echo": lambda value=None: value,
    "kind": lambda value: type(value).__name__,
    "contacts.ask": lambda question: "A:" + question,
    "fail": fail,
    "slow": slow,
    "forever": lambda: time.sleep(3600),
    "handle": lambda: __import__("msgpack").ExtType(2, b"h1"),
    "is_handle": lambda value: value == __import__("msgpack").ExtType(2, b"h1"),
    "h1.size": lambda: 7,
    "fn twice": lambda text: text * 2,
}


@pytest.fixture(scope="module")
def zygote():
    host = Host.start([PROGRAM], capabilities=CAPABILITIES, env=dict(ENVIRONMENT, GLIBC_TUNABLES="glibc.malloc.hugetlb=1"))
    yield host
    host.kill()


@pytest.fixture
def session(zygote):
    host = zygote.clone(SESSION)
    yield host
    host.kill()


@pytest.fixture(scope="module")
def surface():
    surface = Surface()
    yield surface
    surface.end()


@pytest.fixture(scope="module")
def cell_zygote(surface):
    host = surface.spawn([PROGRAM], env=ENVIRONMENT, capabilities=CAPABILITIES)
    yield host
    host.kill()


@pytest.fixture
def celled(cell_zygote):
    """A session whose copies get cells, as under an engine."""
    host = cell_zygote.clone(SESSION)
    yield host
    host.kill()


def ran(host, code, **fields):
    """Runs code that must go well; its output."""
    result = host.run(code, **fields)
    assert result.how == "ok", result
    return result.out.decode()


def value(host, code, **fields):
    result = host.run(code, **fields)
    assert result.how == "ok", result
    return result.body["result"]


def error(host, code, how="exception", **fields):
    result = host.run(code, **fields)
    assert result.how == how, result
    return result.body["error"]
