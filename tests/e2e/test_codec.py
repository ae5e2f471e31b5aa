"""Values on the wire, seeded and by thousands: the codec of Python sessions against another msgpack, damaged bytes, and both ways through an engine."""
import json
import os
import random
import subprocess
import sys
import textwrap

import msgpack
import pytest

from furcalib import furca_program

SEED = int(os.environ.get("FURCA_TEST_SEED", "6"), 0)

# Also run inside a session, so that both sides make the same values.
MAKER = '''
import random, struct
def make(r, depth=0, key=False):
    k = r.randrange(7 if key or depth > 4 else 9)
    if k == 0: return r.choice([None, True, False]) if not key else r.randrange(-5, 5)
    if k == 1: return r.randrange(-2**r.randrange(1, 200), 2**r.randrange(1, 200))
    if k == 2: return r.choice([0.0, -0.0, 1.5, float("inf"), float("-inf"), 5e-324, struct.unpack("<d", struct.pack("<Q", r.getrandbits(62)))[0]])
    if k in (3, 4): return "".join(chr(r.choice([r.randrange(128), r.randrange(0xd800), r.randrange(0xe000, 0x110000)])) for _ in range(r.randrange(40)))
    if k == 5: return bytes(r.getrandbits(8) for _ in range(r.choice([0, 1, 31, 32, 255, 256, 300])))
    if k == 6: return r.choice([127, 128, -32, -33, 255, 256, 65535, 65536, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -2**63, -2**63 - 1])
    if k == 7: return [make(r, depth + 1) for _ in range(r.choice([0, 1, 3, 15, 16]))]
    return {make(r, depth + 1, True): make(r, depth + 1) for _ in range(r.choice([0, 1, 3, 15, 16]))}
'''
exec(MAKER)


def in_process(code):
    """Runs code that has the session's codec as `host`, in a process of its own: one that crashes fails its test only."""
    path = os.path.join(os.path.dirname(os.path.abspath(furca_program())), "_furca_host.abi3.so")
    if not os.path.exists(path):
        pytest.skip("needs _furca_host.abi3.so beside furca")
    head = ("import importlib.machinery, importlib.util, random, sys, msgpack\n"
            "loader = importlib.machinery.ExtensionFileLoader('_furca_host', %r)\n"
            "host = importlib.util.module_from_spec(importlib.util.spec_from_file_location('_furca_host', %r, loader=loader))\n" % (path, path))
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", head + MAKER + textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (SEED, done.stderr[-3000:])
    return done.stdout


def test_the_codec_agrees_with_another_and_with_itself():
    said = in_process("""
        def ext(code, data): return int.from_bytes(data, "big", signed=True) if code == 1 else msgpack.ExtType(code, data)
        def other(v):
            if isinstance(v, int): return msgpack.ExtType(1, v.to_bytes(v.bit_length() // 8 + 1, "big", signed=True))
            raise TypeError(v)
        r = random.Random(%d)
        for n in range(4000):
            v = make(r)
            packed = host.pack(v)
            assert repr(host.unpack(packed)) == repr(v), (n, v)
            assert repr(msgpack.unpackb(packed, ext_hook=ext, strict_map_key=False)) == repr(v), (n, v)
            assert repr(host.unpack(msgpack.packb(v, default=other))) == repr(v), (n, v)
        print(n + 1)
    """ % SEED)
    assert said == "4000\n"


def test_damaged_bytes_are_errors_of_the_codec():
    said = in_process("""
        r = random.Random(%d)
        good = bad = 0
        for n in range(8000):
            data = bytearray(host.pack(make(r)))
            for _ in range(r.randrange(1, 6)):
                at = r.randrange(len(data) + 1)
                how = r.randrange(4)
                if how == 0: data[at:at + 1] = bytes([r.getrandbits(8)])
                elif how == 1: del data[at:at + r.randrange(1, 9)]
                elif how == 2: data[at:at] = bytes(r.choice([b"\\xdd\\xff\\xff\\xff\\xff", b"\\xc6\\x7f\\xff\\xff\\xff", b"\\xdf\\x00\\x10\\x00\\x00", b"\\x91" * 300, b"\\xc1"]))
                else: data[at:at] = data[:r.randrange(20)]
            try:
                host.unpack(bytes(data))
                good += 1
            except (ValueError, TypeError):  # TypeError: a key that cannot be one
                bad += 1
        assert good > 50 and bad > 500, (good, bad)
    """ % (SEED + 1))
    assert said == ""


def test_thousands_of_values_cross_and_come_back(engine):
    client = engine.client()
    r = random.Random(SEED + 2)
    values = [make(r) for _ in range(3000)]
    seen = []

    def echo(x):
        seen.append(x)
        return x

    client.register({"echo": echo, "give": lambda i: values[i]})
    code = MAKER + textwrap.dedent("""
        r = random.Random(%d)
        values = [make(r) for _ in range(3000)]
        back = capabilities.map("echo", [[v] for v in values])
        given = capabilities.map("give", [[i] for i in range(3000)])
        ([i for i in range(3000) if repr(back[i]) != repr(values[i])][:5], [i for i in range(3000) if repr(given[i]) != repr(values[i])][:5])
    """ % (SEED + 2))
    answer = client.python(code, state_mode="stateless", timeout_s=100)
    assert answer["ok"] and answer["result"] == [[], []], (SEED, answer)
    assert sorted(map(repr, seen)) == sorted(map(repr, values))


def test_json_values_cross_from_bash(engine):
    client = engine.client()
    client.register({"echo": lambda x: x})
    r = random.Random(SEED + 3)

    def plain(depth=0):
        k = r.randrange(6 if depth > 3 else 8)
        if k == 0:
            return r.choice([None, True, False])
        if k == 1:
            return r.randrange(-2**r.randrange(1, 200), 2**r.randrange(1, 200))
        if k == 2:
            return r.choice([1.5, -0.25, 1e300, 5e-324, r.random()])
        if k < 6:
            return "".join(chr(r.choice([r.randrange(1, 128), r.randrange(1, 0xd800), r.randrange(0xe000, 0x110000)])) for _ in range(r.randrange(20)))
        if k == 6:
            return [plain(depth + 1) for _ in range(r.randrange(5))]
        return {"k%d" % i: plain(depth + 1) for i in range(r.randrange(5))}

    values = [[plain()] for _ in range(1000)]  # in a list: a bare text would be printed as it is
    code = "while IFS= read -r v; do capability echo x:=\"$v\"; done <<'END-OF-VALUES'\n%s\nEND-OF-VALUES\n" % "\n".join(map(json.dumps, values))
    answer = client.bash(code, state_mode="stateless", timeout_s=100, max_output_bytes=64 << 20)
    assert answer["ok"] and answer["stderr"] == "", (SEED, answer["stderr"][:500])
    assert [json.loads(line) for line in answer["stdout"].splitlines()] == values, SEED
