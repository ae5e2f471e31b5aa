"""What code displays, on a terminal of its own: images by the terminal's protocol or by their file, frames as tables in its width."""
import base64
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unicodedata

import pytest

from furcalib import furca_program

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\0\2" + bytes(range(256)) * 40  # as far as the protocols look: 256 pixels wide
JPEG = b"\xff\xd8\xff\xe0" + bytes(5000)
SHOW = "class I:\n    def _repr_%s_(self): return %r\n    def __repr__(self): return 'I'\ndisplay(I())"
TABLE = "application/vnd.furca.table+json"
TERMINALS = ("TERM", "TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID", "TMUX", "STY", "NO_COLOR", "FURCA_IMAGES")


@pytest.fixture
def env(engine, tmp_path):
    """The variables of a run: of no terminal in particular, with a folder of its own for images."""
    kept = {name: value for name, value in os.environ.items() if name not in TERMINALS}
    return dict(kept, FURCA_SOCKET=engine.socket, TMPDIR=str(tmp_path))


def on_terminal(env, *args, columns=80, pixels=0, **variables):
    """(status, what it wrote) of furca ARGS on a terminal so wide."""
    main, side = pty.openpty()
    settings = termios.tcgetattr(side)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(side, termios.TCSANOW, settings)
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, pixels, 0))
    process = subprocess.Popen([furca_program(), *args], stdin=subprocess.DEVNULL, stdout=side, env=dict(env, **variables))
    os.close(side)
    out, deadline = b"", time.monotonic() + 60
    try:
        while select.select([main], [], [], max(deadline - time.monotonic(), 0))[0]:
            try:
                out += os.read(main, 65536)
            except OSError:  # the last of the other side has closed it
                return process.wait(20), out
        raise AssertionError("it has not ended; so far %r" % out[-500:])
    finally:
        os.close(main)
        if process.poll() is None:
            process.kill()
            process.wait(20)


def by_kitty(out):
    """The image in the sequences of the kitty protocol, and the keys of the first. The form is checked as the protocol has it."""
    assert re.fullmatch(rb"(\033_G[^\033]*\033\\)+\n", out), out[:200]
    parts = [part.split(b";", 1) for part in re.findall(rb"\033_G([^\033]*)\033\\", out)]
    assert all(len(data) == 4096 for _, data in parts[:-1]) and 0 < len(parts[-1][1]) <= 4096
    keys = [dict(pair.split("=") for pair in keys.decode().split(",")) for keys, _ in parts]
    assert [key["m"] for key in keys] == ["1"] * (len(keys) - 1) + ["0"] and all(list(key) == ["m"] for key in keys[1:])
    return base64.b64decode(b"".join(data for _, data in parts), validate=True), keys[0]


def by_iterm(out):
    head, data = re.fullmatch(rb"\033\]1337;File=([^:]*):([A-Za-z0-9+/=]*)\a\n", out).groups()
    image = base64.b64decode(data, validate=True)
    assert head == b"inline=1;size=%d" % len(image)
    return image


def by_path(out, mime, tmp_path):
    path = re.fullmatch(rb"\[%s, (\d+) bytes: (\S+)\]\n" % re.escape(mime).encode(), out)[2].decode()
    assert os.path.dirname(path) == str(tmp_path)
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("variables", [{"TERM": "xterm-kitty"}, {"KITTY_WINDOW_ID": "1"}, {"TERM": "xterm-ghostty"}, {"FURCA_IMAGES": "kitty"}],
                         ids=lambda v: "-".join(v.values()))
def test_an_image_by_the_kitty_protocol(env, variables):
    status, out = on_terminal(env, "exec", "-e", SHOW % ("png", PNG), **variables)
    image, keys = by_kitty(out)
    assert status == 0 and image == PNG and (keys["f"], keys["a"]) == ("100", "T") and "c" not in keys


def test_a_wide_image_is_scaled_to_the_window(env):
    _, out = on_terminal(env, "exec", "--images", "kitty", "-e", SHOW % ("png", PNG), columns=30, pixels=255)
    assert by_kitty(out)[1]["c"] == "30"
    _, out = on_terminal(env, "exec", "--images", "kitty", "-e", SHOW % ("png", PNG), columns=30, pixels=256)
    assert "c" not in by_kitty(out)[1]


@pytest.mark.parametrize("variables", [{"TERM_PROGRAM": "iTerm.app"}, {"TERM_PROGRAM": "WezTerm"}, {"LC_TERMINAL": "iTerm2"}, {"FURCA_IMAGES": "iterm"}],
                         ids=lambda v: "-".join(v.values()))
def test_images_by_the_iterm_protocol(env, variables):
    assert by_iterm(on_terminal(env, "exec", "-e", SHOW % ("png", PNG), **variables)[1]) == PNG
    assert by_iterm(on_terminal(env, "exec", "-e", SHOW % ("jpeg", JPEG), **variables)[1]) == JPEG


@pytest.mark.parametrize("args, variables, kind, data", [
    ((), {"TERM": "xterm-256color"}, ("png", "image/png"), PNG),
    ((), {"TERM": "xterm-kitty", "TMUX": "/tmp/x,1,0"}, ("png", "image/png"), PNG),
    ((), {"TERM": "xterm-kitty"}, ("jpeg", "image/jpeg"), JPEG),  # which that protocol has no form for
    ((), {"TERM": "xterm-kitty"}, ("png", "image/png"), b"no PNG at all"),
    ((), {"TERM_PROGRAM": "iTerm.app"}, ("svg", "image/svg+xml"), b"<svg/>"),
    (("--images", "path"), {"TERM": "xterm-kitty"}, ("png", "image/png"), PNG),
    ((), {"TERM": "xterm-kitty", "FURCA_IMAGES": "path"}, ("png", "image/png"), PNG),
])
def test_other_images_by_their_file(env, tmp_path, args, variables, kind, data):
    shown = data.decode() if kind[0] == "svg" else data
    assert by_path(on_terminal(env, "exec", *args, "-e", SHOW % (kind[0], shown), **variables)[1], kind[1], tmp_path) == data


def test_an_image_too_large_for_a_terminal_goes_to_a_file(env, tmp_path):
    code = SHOW.replace("%r", "%s") % ("png", "%r + bytes(9 << 20)" % PNG[:40])
    assert len(by_path(on_terminal(env, "exec", "-e", code, TERM="xterm-kitty")[1], "image/png", tmp_path)) == (9 << 20) + 40


def test_without_a_terminal_an_image_is_a_file_whatever_was_chosen(env, tmp_path):
    p = subprocess.run([furca_program(), "exec", "--images", "kitty", "-e", SHOW % ("png", PNG)], stdout=subprocess.PIPE, timeout=60,
                       env=dict(env, TERM="xterm-kitty"))
    assert by_path(p.stdout, "image/png", tmp_path) == PNG
    p = subprocess.run([furca_program(), "exec", "--images", "sixel", "-e", "1"], capture_output=True, text=True, timeout=60, env=env)
    assert p.returncode == 2 and "auto, path, kitty or iterm" in p.stderr


def columns_of(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def lines_of(out):
    return re.sub("\033\\[[0-9;]*m", "", out.decode()).splitlines()


def table(heads, rows, shape=None, labels=0, head=None):
    """Code that displays such a table, as the host makes them of frames."""
    made = {"shape": shape or [len(rows), len(heads)], "labels": labels, "rows": rows, "head": head or [len(rows), len(heads) - labels],
            "columns": [{"name": name, "type": "", "align": "right" if name.startswith("n") else "left"} for name in heads]}
    return "display({'" + TABLE + "': %r, 'text/plain': 'as text'}, raw=True)" % made


def test_a_table_is_aligned(env):
    status, out = on_terminal(env, "exec", "-e", table(["", "n", "word"], [["0", "1", "日本"], ["1", "20.5", "a\033[31m\x9bb\nc"]], labels=1, shape=[2, 2]))
    assert status == 0 and lines_of(out) == ["      n  word", "0     1  日本", "1  20.5  a?[31m?b c", "2 rows × 2 columns"]
    assert b"\033[31m" not in out and b"\xc2\x9b" not in out


@pytest.mark.parametrize("columns", [21, 30, 47, 80, 200])
def test_a_table_fits_the_terminal(env, columns):
    heads = ["label"] + ["n%d" % i for i in range(20)]
    rows = [["day %d" % r] + ["%d" % (r * 10 ** (i % 7)) for i in range(20)] for r in range(20)]
    lines = lines_of(on_terminal(env, "exec", "-e", table(heads, rows, [1000, 50], 1, [10, 10]), columns=columns)[1])
    assert len(lines) == 23 and all(columns_of(line) <= columns for line in lines[:-1]) and lines[-1] == "1000 rows × 50 columns"
    shown = lines[0].split()
    gap = shown.index("…")
    left, right = shown[1:gap], shown[gap + 1:]
    assert left == heads[1:1 + len(left)] and right == heads[len(heads) - len(right):] and 0 <= len(left) - len(right) <= 1 and left
    assert set(lines[11].split()) == {"…"} and len(lines[11].split()) == len(shown)
    assert len(shown) == 22 or columns < 200  # all that came, and the mark between


def test_a_long_text_is_cut_in_the_middle_of_nothing_else(env):
    lines = lines_of(on_terminal(env, "exec", "-e", table(["word", "n"], [["日" * 30, "1"]]), columns=100)[1])
    assert lines[1] == "日" * 19 + "…" + "   1" and columns_of(lines[1]) == 42 + 1


@pytest.mark.parametrize("wrong", [
    {"columns": []}, {"columns": 5}, {"columns": [{"nam": "a"}]}, {"columns": [{"name": "a"}] * 65}, {"rows": [["1", "2"]]}, {"rows": [[1]]}, {"rows": [["1"]] * 65},
    {"rows": {}}, {"shape": [1]}, {"shape": [-1, 1]}, {"head": None}, {"labels": 2}, {"labels": "1"},
], ids=lambda wrong: next(iter(wrong)))
def test_what_is_no_table_is_shown_as_text(env, wrong):
    made = {"shape": [1, 1], "labels": 0, "columns": [{"name": "a"}], "rows": [["1"]], "head": [1, 1], **wrong}
    code = "display({'" + TABLE + "': %r, 'text/plain': 'as text'}, raw=True)" % made
    assert lines_of(on_terminal(env, "exec", "-e", code)[1]) == ["as text"]


FRAMES = [
    ("{'i': [1, 20], 'f': [0.5, float('nan')], 's': ['a', None], 'b': [True, False]}",
     [["0", "1", "0.5", "a", "True"], ["1", "20", "NaN", "None", "False"]], ["right", "right", "right", "left", "left"]),
    ("{'f': [1.25, 100], 'small': [1e-9, 1], 'large': [1e15, 1], 'whole': [2.0, 3.0], 'many': [1/3, 0.1 + 0.2]}",
     [["0", "1.25", "1e-09", "1e+15", "2.0", "0.333333"], ["1", "100.00", "1", "1", "3.0", "0.300000"]], ["right"] * 6),
    ("{'l': [[1, 2], {3: 'x'}], 's': ['y' * 81, 'z' * 80], 'u': ['\\udc80', 'é'], 't': pd.to_datetime(['2020-01-02', None])}",
     [["0", "[1, 2]", "y" * 79 + "…", "\\udc80", "2020-01-02 00:00:00"], ["1", "{3: 'x'}", "z" * 80, "é", "NaT"]],
     ["right", "left", "left", "left", "left"]),
    ("{'a': [1]}, index=pd.MultiIndex.from_tuples([('k', 7)])", [["k", "7", "1"]], ["left", "right", "right"]),
    ("{'a': []}", [], ["left", "left"]),
]


@pytest.mark.parametrize("made, rows, align", FRAMES, ids=range(len(FRAMES)))
def test_the_table_of_a_frame(engine, made, rows, align):
    pytest.importorskip("pandas")
    answer = engine.client().python("import pandas as pd\npd.DataFrame(%s)" % made)
    shown = answer["display"][-1][TABLE]
    assert (shown["rows"], [column["align"] for column in shown["columns"]]) == (rows, align)
    assert "text/plain" not in answer["display"][-1] and answer["result_text"]


def test_the_table_of_a_large_frame_is_bounded(engine):
    pytest.importorskip("pandas")
    client = engine.client()
    client.python("import numpy as np, pandas as pd\nlarge = pd.DataFrame(np.zeros((5005, 500), int) + np.arange(500), columns=['c%d' % i for i in range(500)])")
    shown = client.python("large.iloc[5:]")["display"][-1][TABLE]
    assert (shown["shape"], shown["head"], shown["labels"]) == ([5000, 500], [10, 10], 1)
    kept = [*range(10), *range(490, 500)]
    assert [column["name"] for column in shown["columns"]] == ["", *("c%d" % i for i in kept)] and shown["columns"][1]["type"] == "int64"
    assert shown["rows"] == [[str(row), *map(str, kept)] for row in (*range(5, 15), *range(4995, 5005))]
    longest = client.python("pd.DataFrame([['\U0001F600' * 10**4] * 50] * 50)")["display"][-1][TABLE]
    assert len(longest["rows"]) == 20 and {text for row in longest["rows"] for text in row[1:]} == {"\U0001F600" * 79 + "…"}


def test_a_frame_that_fails_has_no_table_and_no_error(engine):
    answer = engine.client().python("import sys, types\nclass Odd:\n    shape = (1, 1)\n    def to_series(self, at): raise ValueError('no')\n"
                                    "    def _repr_html_(self): return '<b>'\nsys.modules['polars'] = types.SimpleNamespace(DataFrame=Odd)\nOdd()")
    assert answer["ok"] and answer["display"] == [{"text/html": "<b>", "at": 0}]


def test_a_frame_is_a_table_on_a_terminal_and_text_elsewhere(env, engine):
    pytest.importorskip("pandas")
    code = "import pandas as pd\nframe = pd.DataFrame({'word': ['a', None], 'n': [1.5, float('nan')]}, index=['x', 'y'])\nframe"
    want = ["   word    n", "x  a     1.5", "y  None  NaN", "2 rows × 2 columns"]
    assert lines_of(on_terminal(env, "exec", "-e", code)[1]) == want
    assert lines_of(on_terminal(env, "exec", "-e", "print('first', end=''); display(frame); 7")[1]) == ["first", *want, "7"]
    p = subprocess.run([furca_program(), "exec", "-e", code], capture_output=True, text=True, timeout=60, env=env)
    assert p.stdout == engine.client().python("repr(frame)", session_id=0)["result"] + "\n"


def test_inspect_shows_a_frame_by_its_name(env, engine):
    pytest.importorskip("pandas")
    client = engine.client()
    client.python("import pandas as pd\nframe = pd.DataFrame({'n': [1, 20]})\nsecret_frame = frame\nn = 5", session_name="looked")
    status, out = on_terminal(env, "inspect", "looked", "frame")
    assert status == 0 and lines_of(out)[-5:] == ["", "    n", "0   1", "1  20", "2 rows × 1 columns"]
    for name in ("secret_frame", "n"):
        assert "rows ×" not in on_terminal(env, "inspect", "looked", name)[1].decode()
    p = subprocess.run([furca_program(), "inspect", "looked", "frame"], capture_output=True, text=True, timeout=60, env=env)
    assert "DataFrame" in p.stdout and "rows ×" not in p.stdout
    entry, = client.call("inspect_session", session_name="looked", name="frame")["state"]["names"]
    assert entry["table"]["rows"] == [["0", "1"], ["1", "20"]]
    assert all("table" not in entry for entry in client.call("inspect_session", session_name="looked", detail="full")["state"]["names"])


def test_a_stored_function_shows_its_frame(env):
    pytest.importorskip("pandas")
    p = subprocess.run([furca_program(), "functions", "add", "framed", "-"], input=b"def framed():\n    import pandas as pd\n    return pd.DataFrame({'n': [1]})",
                       timeout=60, env=env)
    assert p.returncode == 0
    status, out = on_terminal(env, "functions", "call", "framed")
    assert status == 0 and lines_of(out) == ["   n", "0  1", "1 rows × 1 columns"]
    p = subprocess.run([furca_program(), "functions", "call", "framed"], capture_output=True, text=True, timeout=60, env=env)
    assert p.stdout == "   n\n0  1\n"
