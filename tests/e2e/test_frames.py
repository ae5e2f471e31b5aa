"""Arrays and frames between a client and code in sessions: by shared memory, as they are, and nothing else by that way."""
import importlib
import os
import pickle
import socket
import struct
import sys

import pytest

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bridge", "python"))
furca = pytest.importorskip("furca", reason="the client needs msgpack")
from furca import _frames  # noqa: E402


@pytest.fixture
def offering(engine):
    client = furca.Engine(engine.socket, frames=True)
    client.seen = []

    def take(x):
        client.seen.append(x)
        return x

    client.capability("take", effect="read")(take)
    yield client
    client.close()


def through(value):
    buffers = []
    data = _frames.dump(value, buffers)
    fd = _frames.store(buffers)
    try:
        return _frames.load(data, _frames.read(fd))
    finally:
        os.close(fd)


FRAME = {"i": range(4), "f": [1.5, float("nan"), -0.0, 2.0], "s": ["a", None, "\u4e16", ""], "t": pandas.date_range("2026-01-01", periods=4, tz="UTC"),
         "c": pandas.Categorical(["x", "y", "x", "x"]), "I": pandas.array([1, None, 3, 4], dtype="Int64"),
         "S": pandas.array(["a", None, "b", "c"], dtype="string"), "d": pandas.to_timedelta(range(4), unit="s"),
         "p": pandas.period_range("2026-01", periods=4, freq="M"), "n": pandas.interval_range(0, 4)}


def test_every_kind_of_column_comes_back():
    frame = pandas.DataFrame(FRAME)
    for value in (frame, frame.set_index(["i", "c"]), frame.iloc[:0], frame.T, pandas.DataFrame()):
        pandas.testing.assert_frame_equal(through(value), value)
    for name in frame:
        pandas.testing.assert_series_equal(through(frame[name]), frame[name])


def test_intervals_and_sparse_values_come_back():
    """Their makers were taken for something else."""
    frame = pandas.DataFrame({"cut": pandas.cut([1, 2, 3], 2), "sparse": pandas.arrays.SparseArray([0, 0, 1]),
                              "block": pandas.arrays.SparseArray([0.0, 1.0, 1.0], fill_value=0.0, kind="block")}, index=pandas.interval_range(0, 3))
    pandas.testing.assert_frame_equal(through(frame), frame)
    pandas.testing.assert_index_equal(through(frame.index), frame.index)
    for name in frame:
        pandas.testing.assert_series_equal(through(frame[name]), frame[name])


@pytest.mark.parametrize("kind", ["f8", "i4", "?", "c16", "U3", "S2", "M8[s]", [("a", "i4"), ("b", "f8")], "O"])
def test_every_kind_of_array_comes_back(kind):
    for shape in ((), (0,), (5,), (2, 3)):
        array = numpy.zeros(shape, dtype=kind)
        back = through(array)
        assert back.dtype == array.dtype and back.shape == shape and (back == array).all() and back.flags.writeable
    assert (through(numpy.arange(12).reshape(3, 4).T[:, 1:]) == numpy.arange(12).reshape(3, 4).T[:, 1:]).all()


def test_nothing_else_is_made_of_what_comes():
    class Evil:
        def __reduce__(self):
            return os.system, ("false",)

    for value in (numpy.array([Evil()], dtype=object), pandas.DataFrame({"x": [pandas.read_csv]})):
        with pytest.raises(TypeError, match="no part of an array or frame"):
            through(value)
    by_name = pickle.dumps(numpy.ndarray, 2).replace(b"ndarray", b"fromfile")
    head = struct.pack(">BHQI", _frames.FORMAT, 0, 0, 0)
    with pytest.raises(TypeError, match="no part"):
        _frames.load(head + by_name, None)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" * 20, struct.pack(">BHQI", 1, 0, 0, 9), struct.pack(">BHQIQ", 1, 0, 1 << 63, 1, 1 << 63),
                                  struct.pack(">BHQIQ", 1, 0, 0, 1, 9), struct.pack(">BHQI", 1, 9, 0, 0) + b"\x80", struct.pack(">BHQI", 1, 0, 0, 0)])
def test_bytes_that_are_no_array_are_an_error(data):
    for memory in (None, memoryview(bytearray(8))):
        with pytest.raises((TypeError, ValueError)):
            _frames.load(data, memory)


@pytest.mark.parametrize("found, attribute, value", [("pandas\nIndex", "take", "K\x05"), ("pandas\nIndex", "new", "K\x05"),
                                                     ("numpy.core.numeric\n_frombuffer", "__defaults__", "(K\x01t"),
                                                     ("numpy.core.numeric\n_frombuffer", "more", "K\x05")])
def test_classes_and_functions_stay_as_they_are(found, attribute, value):
    """Bytes from elsewhere set attributes of pandas' classes for the whole process."""
    name = attribute.encode()
    data = b"\x80\x05c%s\n(N}X%s%s%sstb." % (found.encode(), struct.pack("<I", len(name)), name, value.encode())
    module, _, part = found.partition("\n")
    kind = getattr(importlib.import_module(module), part)
    before = getattr(kind, attribute, None)
    with pytest.raises(TypeError, match="sets attributes"):
        _frames.load(struct.pack(">BHQI", _frames.FORMAT, 0, 0, 0) + data, None)
    assert getattr(kind, attribute, None) is before
    test_every_kind_of_column_comes_back()


def test_memory_that_could_change_is_not_read():
    fd = os.memfd_create("open", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, b"x" * 64)
    with pytest.raises(ValueError, match="sealed"):
        _frames.read(fd)
    os.close(fd)


def test_both_ways_and_the_copies_are_ones_own(offering):
    code = "import numpy as np\na = np.arange(6.0).reshape(2, 3)\nb = capabilities.take(a)\nb += 1\n(a.sum(), b.sum(), b.dtype.str)"
    assert offering.python(code).value == [15.0, 21.0, "<f8"]
    assert offering.seen[0].shape == (2, 3) and offering.seen[0].sum() == 15
    code = "import pandas as pd\nf = pd.DataFrame({'a': [1, 2], 's': ['x', None]})\nint(capabilities.take({'one': f, 'more': [f.a, f]})['more'][0].sum())"
    assert offering.python(code).text == "3"
    pandas.testing.assert_frame_equal(offering.seen[1]["one"], offering.seen[1]["more"][1])


def test_in_every_mode(offering):
    session = offering.session("frames")
    session.run("import numpy as np\nx = np.ones(1000)")
    assert session.read("float(capabilities.take(x).sum())").value == 1000
    code = "import asyncio\nr = await asyncio.gather(*[capabilities.take(np.full(100000, i)) for i in range(30)])\n[int(a[7]) for a in r] == list(range(30))"
    assert session.run(code).value is True
    code = ("import threading\nout = []\ndef work(i):\n    for _ in range(10): out.append(int(capabilities.take(np.full(50000, i))[3]) == i)\n"
            "ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\n(all(out), len(out))")
    assert session.run(code).value == [True, 80]
    assert session.run("[int(a.sum()) for a in capabilities.map('take', [x, x])]").value == [1000, 1000]
    session.close()


def test_an_array_can_be_larger_than_a_message(offering):
    assert offering.python("import numpy as np\nfloat(capabilities.take(np.ones(10_000_000)).sum())").text.startswith("10000000")
    with pytest.raises(furca.CodeError, match="send parts"):
        offering.python("import numpy as np\ncapabilities.take(np.empty(1 << 28))")


def test_who_did_not_ask_is_not_sent_any(offering, engine):
    plain = engine.client()
    plain.register({"plain": lambda x: x})
    answer = plain.python("import numpy as np\ncapabilities.plain(np.ones(3))", state_mode="stateless")
    assert "TypeError" in answer["error"] and "tolist" in answer["error"], answer
    assert plain.capability_requests == []
    with pytest.raises(furca.CodeError, match="no form|pass None"):
        no_frames = furca.Engine(engine.socket)
        no_frames.capability("give", effect="read")(lambda: numpy.ones(2))
        try:
            no_frames.python("capabilities.give()")
        finally:
            no_frames.close()
    offering.capability("give", effect="read")(lambda: numpy.ones(2))
    r = offering.bash("capability give || echo refused")
    assert r.stdout == "refused\n" and "array" in r.stderr


def test_arguments_and_values_of_functions(offering, engine):
    """call_function takes arrays and gives some, in every mode; where the client takes none it has the text."""
    source = "def twice(x, more=None):\n    return [x * 2, {'more': more}]"
    offering.add_function("twice", source)
    frame = pandas.DataFrame(FRAME)
    for mode in ("stateful", "stateless"):
        result = offering.call_function("twice", numpy.arange(6.0).reshape(2, 3), more=frame, state_mode=mode)
        assert result.value[0].tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
        pandas.testing.assert_frame_equal(result.value[1]["more"], frame)
    large = offering.call_function("twice", numpy.ones(5_000_000), state_mode="stateless").value[0]
    assert large.shape == (5_000_000,) and large.sum() == 10_000_000
    calls = [offering._start("call_function", {"name": "twice", "args": [numpy.full(1000, i)], "frames": _frames.versions(), "state_mode": "stateless"})
             for i in range(12)]
    assert [int(offering._kept.back(call._future.result(60)["result"])[0][7]) for call in calls] == [2 * i for i in range(12)]
    plain = engine.client()
    offering.add_function("ones", "def ones(n):\n    import numpy\n    return numpy.ones(n)")
    answer = plain.call("call_function", name="ones", args=[2])
    assert answer["ok"] and answer["result"] is None and answer["result_text"] == "array([1., 1.])", answer
    refused = plain.call("call_function", name="ones", args=[2], frames=_frames.versions())
    assert refused["error_type"] == "validation" and refused["suggestion"].startswith("Remove frames"), refused
    assert furca.suggestions.correct(plain.call, {"name": "ones", "args": [2], "frames": ""}, refused["suggestion"]) == {"name": "ones", "args": [2]}
    offering.remove_function("ones")
    offering.remove_function("twice")


def test_an_argument_without_its_memory_is_refused(engine):
    import msgpack
    refused = engine.client().call("call_function", name="none", args=[msgpack.ExtType(3, _frames.dump(numpy.ones(2), []))])
    assert refused["error_type"] == "validation" and "memory" in refused["error"], refused


def test_versions_are_named_where_it_cannot_be_read(offering):
    code = "import sys\nclass No:\n    def find_spec(self, name, path=None, target=None):\n        if name.partition('.')[0] == 'numpy': raise ImportError(name)\n"
    code += "sys.meta_path.insert(0, No())\ntry:\n    capabilities.give()\nexcept ImportError as e:\n    print(e)"
    offering.capability("give", effect="read")(lambda: numpy.ones(2))
    said = offering.python(code, state_mode="stateless").stdout
    assert "numpy " + numpy.__version__ in said and "cannot be read by python" in said


def test_a_client_that_sends_descriptors_for_nothing_loses_its_connection_only(offering, engine):
    import msgpack
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(engine.socket)
    raw.sendall(msgpack.packb([0, 1, "hello", [{"frames": True}]]))
    raw.recv(65536)
    fd = os.open("/dev/null", os.O_RDONLY)
    for n in range(20):
        try:
            socket.send_fds(raw, [msgpack.packb([2, "nothing", []])], [fd] * 4)
        except OSError:
            break
    os.close(fd)
    raw.settimeout(10)
    got = b""
    while True:
        try:
            piece = raw.recv(65536)
        except ConnectionResetError:  # what was sent after the answer stays unread there
            break
        if not piece:
            break
        got += piece
    raw.close()
    assert b"descriptors" in got
    assert offering.python("1 + 1").value == 2
