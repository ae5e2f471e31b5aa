"""Arrays and frames as arguments and values of stored functions: by pickle where releases agree, by Arrow where not, else an error that says
what to do."""
import os
import sys

import pytest

from furcalib import Engine
from test_envs import PIP, built, index, slow, spec, uv_program
from test_functions import add, py  # noqa: F401

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bridge", "python"))
from furca import _frames  # noqa: E402

HERE = _frames.versions()

DOUBLE = """
def double(x):
    x *= 2
    return {"x": x, "more": [x, x.sum()]}
"""


def test_between_processes_of_one_environment(client, add):
    add("double", DOUBLE)
    where = dict(state_mode="stateful", session_name="caller")
    py(client, "import numpy as np, pandas as pd\na = np.arange(3e6)\nf = pd.DataFrame({'n': [1, 2], 's': [3.5, 4.5]})", **where)
    assert py(client, "r = functions.double.stateless(a)\n[bool((r['x'] == 2 * a).all()), bool((r['more'][0] == 2 * a).all())]", **where) == [True, True]
    assert py(client, "functions.double.read_only(f)['x'].equals(f * 2) and f.n.tolist() == [1, 2]", **where) is True
    assert py(client, "rs = [await functions.double.stateless(f) for _ in range(2)]\nall(r['x'].equals(f * 2) for r in rs)", **where) is True
    assert py(client, "functions.double(f)['x'] is f", **where) is True  # in its own namespace nothing is copied
    assert py(client, "functions.double.stateful(f, session='other')['x'].equals(f * 2)", **where) is True


def test_to_a_session_that_a_signal_disturbed(client, add):
    """The host asks for pipes of the call's own then, and RUN is sent again with its arrays."""
    add("double", DOUBLE)
    other = dict(state_mode="stateful", session_name="disturbed")
    py(client, "import signal, numpy\nsignal.signal(signal.SIGALRM, lambda *a: None)\nNone", **other)
    py(client, "None", **other)
    for _ in range(3):
        py(client, "signal.setitimer(signal.ITIMER_REAL, 0.05)\nNone", **other)
        assert py(client, "import time, numpy\ntime.sleep(0.2)\nfloat(functions.double.stateful(numpy.ones(9), session='disturbed')['x'].sum())") == 18


def test_what_has_no_form_says_why(client, add):
    add("odd", "import numpy\ndef odd(x=None):\n    return numpy.array([lambda: 1], dtype=object)")
    answer = client.python("functions.odd.stateless()")
    assert answer["error_type"] == "exception" and "'odd' returned what cannot cross between processes: this ndarray cannot be sent" in answer["error"], answer
    answer = client.python("import pandas\nfunctions.odd.stateless(pandas.DataFrame({'f': [print]}))")
    assert answer["error_type"] == "exception" and "no part of an array or frame" in answer["error"], answer


@pytest.mark.parametrize("reader, said", [
    ("python 3.9", "add pandas to the environment"), ("python 3.9, numpy 2.0.0, pandas 0.9.9", "add pyarrow"),
    ("python 3.9, pandas 0.9, pyarrow 14.0.0", "add pyarrow"), ("pandas 0.9", "to_dict"),
])
def test_a_reader_that_cannot_is_told_before_anything_is_sent(reader, said):
    with pytest.raises(TypeError, match=said) as caught:
        _frames.dump(pandas.DataFrame({"a": [1]}), _frames.Buffers(reader))
    assert reader in str(caught.value) and HERE in str(caught.value)


@pytest.mark.parametrize("reader", [None, HERE, "python 3.14, pandas 99.0", "python 3.9, " + HERE.partition(", ")[2]])
def test_a_reader_that_can_gets_a_pickle(reader):
    buffers = _frames.Buffers(reader)
    data = _frames.dump(pandas.DataFrame({"a": [1.5]}), buffers)
    assert data[0] == _frames.FORMAT
    assert _frames.load(data, memoryview(bytes(buffers[0]).ljust(64, b"\0"))).a[0] == 1.5


def test_a_later_major_release_is_not_read(monkeypatch):
    data = _frames.dump(pandas.DataFrame({"a": [1]}), [])
    own = pandas.__version__
    monkeypatch.setattr(pandas, "__version__", "0.25.3")
    with pytest.raises(TypeError, match="a later major release.*|.*" + own):
        _frames.load(data, memoryview(bytearray(64)))


def test_versions_are_told_without_an_import(client):
    code = "import sys\nspace = {}\nwith open(%r) as file:\n    exec(file.read(), space)\n[space['versions'](), 'numpy' in sys.modules]" % _frames.__file__
    said, loaded = py(client, code, state_mode="stateless")
    assert not loaded and "numpy " + numpy.__version__ in said, said


# ------------------------------------------------------------------------------------------------------------ real environments
KINDS = """
import datetime, numpy, pandas
days = pandas.date_range("2026-01-01", periods=3, name="day", tz="UTC")
frame = pandas.DataFrame({"f": [1.5, None, -0.0], "i": [1, 2, 3], "s": ["x", None, "\u4e16"], "c": pandas.Categorical(["u", "v", "u"]),
                          "t": pandas.to_datetime(["2026-01-01", None, "2027-01-01"]), "I": pandas.array([1, None, 3], dtype="Int64")}, index=days)
values = [frame, frame["f"], frame["s"].rename(None), frame["c"], days, frame["c"].values, frame.reset_index(drop=True), frame.iloc[:0],
          frame.set_index(["i", "c"]), frame.set_index(["i", "c"]).index, frame[["i"]]]
arrays = [numpy.arange(6.0).reshape(2, 3).T, numpy.array(["a", "bc"]), numpy.array([1, None], dtype=object), numpy.zeros((0, 2), "i4"),
          numpy.array(["2026-01-01"], "M8[s]"), numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])]
def same(a, b):
    return type(a) is type(b) and (a.equals(b) if hasattr(a, "equals") else a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all()))
"""
BACK = """
import numpy, pandas
def %s(x, change=False):
    if change:
        x.iloc[0, 0] = 7.0
    return [x, pandas.__version__, numpy.__version__]
"""


@pytest.fixture(scope="module")
def places():
    """An engine with three environments and a function in each: pandas 1.5 with Arrow, 2.2 with it, 2.2 without."""
    engine = Engine(env=PIP if not uv_program() else {"FURCA_ENV_TOOL": uv_program()})
    client = engine.client()
    envs = {"old": built(client, spec("numpy==1.26.*", "pandas==1.5.*", "pyarrow==15.*", python=">=3.9,<3.12"), 900),
            "new": built(client, spec("numpy>=2,<2.4", "pandas==2.2.*", "pyarrow>=17", python=">=3.12,<3.14"), 900),
            "bare": built(client, spec("numpy>=2,<2.4", "pandas==2.2.*", python=">=3.12,<3.14"), 900)}
    for name, venv in envs.items():
        assert client.call("add_function", name=name, language="python", source=BACK % name, venv_id=venv)["ok"]
    yield client, envs
    assert engine.stop() == 0
    engine.clean()


PAIRS = [("old", "new"), ("new", "old"), ("new", "bare"), ("bare", "new"), ("old", "old")]


@index
@slow
@pytest.mark.parametrize("caller, callee", PAIRS)
def test_frames_cross_between_releases(places, caller, callee):
    client, envs = places
    code = KINDS + ("there = functions.%s.on('stateful', session='there %s')\nwrong = [repr(v) for v in values + arrays if not same(there(v)[0], v)]\n"
                    "wrong + [functions.%s(values[0], change=True)[0].iloc[0, 0], there(1)[1][:3]]" % ((callee,) * 3))
    assert py(client, code, venv_id=envs[caller]) == [7.0, "1.5" if callee == "old" else "2.2"]
    code = KINDS + "import asyncio\nrs = await asyncio.gather(*[functions.%s({'deep': [frame, a]}) for a in arrays[:3]])\nall(same(r[0]['deep'][0], frame) for r in rs)"
    assert py(client, code % callee, venv_id=envs[caller]) is True


@index
@slow
@pytest.mark.parametrize("caller, callee", [("old", "bare"), ("bare", "old")])
def test_without_arrow_the_error_says_what_to_do(places, caller, callee):
    client, envs = places
    code = KINDS + "a = functions.%s(arrays[0])[0]\nassert same(a, arrays[0])\nfunctions.%s(frame)" % (callee, callee)
    answer = client.python(code, timeout=120, venv_id=envs[caller])
    assert answer["error_type"] == "exception" and "add pyarrow>=14.0.1" in answer["error"], answer
    assert "pandas 1.5" in answer["error"] and "pandas 2.2" in answer["error"] and "to_dict" in answer["error"]
