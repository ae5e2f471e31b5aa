"""The bash host without an engine: how it is started, a session of it as fixtures, and tests of a result."""
import os

import pytest

import hostlib
from hostlib import SESSION, Surface

BASH = os.environ.get("FURCA_TEST_BASH", "/bin/bash")
BUILTIN = os.path.join(hostlib.libexec(), "furca-bash.so")
START = 'enable -f "$1" furca_host capability furca-fn furca-reset && furca_host'

needs_bash = pytest.mark.skipif(not os.path.exists(BASH), reason="needs " + BASH)

ARGV = [BASH, "--norc", "--noprofile", "-p", "-c", START, "bash", BUILTIN]


@pytest.fixture(scope="module")
def zygote():
    surface = Surface()
    host = surface.spawn(ARGV, capabilities={
        "contacts.lookup": lambda *a, **k: {"args": list(a), "kwargs": k},
        "echo": lambda value=None: value,
        "fail": lambda text: (_ for _ in ()).throw(KeyError(text)),
        "slow": lambda i: (__import__("time").sleep(0.3), i)[1],
        "fn twice": lambda text: text * 2,
    })
    yield host
    host.kill()
    surface.end()


@pytest.fixture
def session(zygote):
    host = zygote.clone(SESSION)
    yield host
    host.kill()


def out(expected, status=0):
    return lambda r: r.out == expected and r.status == status


def has(expected, status=None):
    return lambda r: expected in r.out + r.err and (status is None or r.status == status)


def st(expected):
    return lambda r: r.status == expected


def ended(how, status=None):
    return lambda r: r.how == how and (status is None or r.status == status)


def both(expected_out, expected_err, status=0):
    return lambda r: r.out == expected_out and r.err == expected_err and r.status == status


def lives(r):
    return r.how != "lost"


def quick(seconds, lacks=b"no"):
    return lambda r: r.seconds < seconds and lacks not in r.out and r.how == "interrupted"
