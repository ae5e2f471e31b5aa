"""Sessions with libraries that keep pools of threads: a read-only call that uses the pool gives the same answer as in place, every time.

The libraries come from the index, in the releases of libraries.txt, into an environment of the engine's (FURCA_SLOW=1; some 400 MB); what the
own interpreter can import of them is tested always, with a few calls. FURCA_LIBRARY_CALLS sets the number of calls for each; `make
check-libraries` runs all of it 200 times.
"""
import json
import os
import subprocess
import time

import pytest

from furcalib import Engine

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = int(os.environ.get("FURCA_LIBRARY_CALLS", "5"))
SLOW = bool(os.environ.get("FURCA_SLOW"))

# Each: how the session is set up, and a look that uses the pool and is the same whatever the order of its threads.
LIBRARIES = {
    "numpy": ("import numpy as np\na = (np.arange(640000) % 7).reshape(800, 800).astype(float)\nb = a @ a",
              "int((a @ a).sum() + np.linalg.matrix_rank(a[:200, :200]))"),
    "scipy": ("import numpy as np, scipy.linalg, scipy.fft\nm = (np.arange(90000) % 11).reshape(300, 300) + 500. * np.eye(300)\n"
              "scipy.fft.fft2(m, workers=2)",
              "(round(float(scipy.linalg.solve(m, m).sum())), round(abs(scipy.fft.fft2(m, workers=2)).sum()))"),
    "pandas": ("import pandas as pd\ndf = pd.DataFrame({'g': [i % 97 for i in range(200000)], 'v': range(200000), "
               "'s': ['row %d' % (i % 1000) for i in range(200000)]})\ndf.groupby('g').v.sum()",
               "(int(df.groupby('g').v.sum().max()), int(df.s.str.upper().str.len().sum()), int(df.sort_values('v', ascending=False).v.iloc[0]))"),
    "polars": ("import polars as pl\nf = pl.DataFrame({'g': [i % 1009 for i in range(300000)], 'v': range(300000)})\n"
               "f.group_by('g').agg(pl.col('v').sum())",
               "f.lazy().group_by('g').agg(pl.col('v').sum(), pl.len()).sort('v').collect().select((pl.col('v') * pl.col('len')).sum()).item()"),
    "pyarrow": ("import io, pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc\npa.set_cpu_count(4)\n"
                "t = pa.table({'g': [i % 1009 for i in range(300000)], 'v': list(range(300000)), 's': [str(i) for i in range(300000)]})\n"
                "held = io.BytesIO(); pq.write_table(t, held, row_group_size=20000); t.group_by('g').aggregate([('v', 'sum')])",
                "(pc.sum(t.group_by('g', use_threads=True).aggregate([('v', 'sum')])['v_sum']).as_py(), "
                "pc.sum(pq.read_table(io.BytesIO(held.getvalue()), use_threads=True)['v']).as_py())"),
    "duckdb": ("import duckdb\ndb = duckdb.connect()\ndb.execute('set threads = 4')\n"
               "db.execute('create table t as select range as v, range % 1009 as g from range(500000)')\n"
               "db.execute('select g, sum(v) from t group by g').fetchall()",
               "[int(n) for n in db.execute('select count(*), sum(s), max(s) from (select g, sum(v) as s from t group by g)').fetchone()]"),
    "duckdb_write": ("import duckdb\nfiled = duckdb.connect('kept.duckdb')\nfiled.execute('set threads = 4')\n"
                     "filed.execute('create table t as select range as v from range(300000)')",
                     "(filed.execute('insert into t select range from range(1000)').fetchall(), "
                     "filed.execute('select count(*) from t').fetchone())[1][0]"),
    "sklearn": ("import numpy as np\nfrom sklearn.cluster import KMeans\nfrom sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier\n"
                "rng = np.random.RandomState(0)\nX = rng.randint(0, 50, (1200, 4)).astype(float)\ny = (X.sum(1) > 98).astype(int)\n"
                "model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X, y)\n"
                "forest = RandomForestClassifier(8, random_state=0, n_jobs=2).fit(X, y)",
                "(int(model.predict(X).sum()), int(forest.predict(X).sum()), "
                "int(KMeans(3, n_init=1, random_state=0).fit(X).labels_.sum()), "
                "int(HistGradientBoostingClassifier(max_iter=2, random_state=0).fit(X, y).predict(X).sum()))"),
    "torch": ("import torch\ntorch.set_num_threads(2)\nw = (torch.arange(360000) % 5).reshape(600, 600).double()\nw @ w",
              "(int((w @ w).sum()), int(torch.sort((torch.arange(300000) * 7919) % 300007)[0][12345]))"),
    "tbb": ("import numba, numpy as np\nnumba.config.THREADING_LAYER = 'tbb'\n"
            "@numba.njit(parallel=True)\ndef total(a):\n    s = 0\n    for i in numba.prange(a.shape[0]): s += a[i]\n    return s\n"
            "numbers = np.arange(1000000)\nassert total(numbers) and numba.threading_layer() == 'tbb'",
            "int(total(numbers))"),
    "threading": ("import queue, threading\nasked, given = queue.Queue(), queue.Queue()\n"
                  "def serve():\n    while True: given.put(asked.get() ** 2)\n"
                  "for _ in range(3): threading.Thread(target=serve, daemon=True).start()\nasked.put(3); given.get()",
                  "asked.put(5) or given.get()"),
    "futures": ("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(4)\nsum(pool.map(abs, range(-1000, 1000)))",
                "sum(pool.map(abs, range(-1000, 1000)))"),
    "asyncio": ("import asyncio, threading\nloop = asyncio.new_event_loop()\nthreading.Thread(target=loop.run_forever, daemon=True).start()\n"
                "async def add(*n):\n    await asyncio.sleep(0.001)\n    return sum(n)\n"
                "asyncio.run_coroutine_threadsafe(add(1, 2), loop).result()",
                "asyncio.run_coroutine_threadsafe(add(1, 2, 3), loop).result()"),
}
OWN = {"futures", "asyncio", "threading"}  # of the standard library


def importable(name):
    return subprocess.run(["/usr/bin/python3", "-c", "import " + name], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def served():
    engine = Engine()
    yield engine
    assert engine.stop() == 0, engine.log()[-3000:]
    assert " alert " not in engine.log(), engine.log()[-3000:]
    engine.clean()


@pytest.fixture(scope="module")
def environment(served):
    if not SLOW:
        pytest.skip("set FURCA_SLOW=1 to build the environment of libraries.txt")
    with open(os.path.join(HERE, "libraries.txt")) as f:
        wanted = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    with served.client() as client:
        venv = client.call("create_env", spec="[project]\ndependencies = %s\n" % json.dumps(wanted))["venv_id"]
        built = client.call("build_env", venv_id=venv, timeout=900)
    assert built["ok"] and built["state"] == "ready", built
    return venv


def same_answers(served, name, **where):
    setup, look = LIBRARIES[name]
    began = time.monotonic()
    with served.client() as client:
        done = client.python(setup, session_name=name, state_mode="stateful", timeout=300, timeout_s=200, **where)
        assert done["ok"], done["error"]
        expected = client.python(look if name != "duckdb_write" else "301000", session_name=name, state_mode="stateful", timeout_s=60, **where)
        assert expected["ok"], expected["error"]
        slowest = 0
        for call in range(CALLS):
            answer = client.python(look, session_name=name, state_mode="read_only", timeout_s=30, **where)
            assert answer["ok"], "call %d of %d: %s" % (call, CALLS, answer)
            assert answer["result"] == expected["result"], "call %d of %d: %r, not %r" % (call, CALLS, answer["result"], expected["result"])
            assert answer["isolation"]["threads"] == "clone", answer["isolation"]
            slowest = max(slowest, answer["duration_ms"])
        again = client.python(look, session_name=name, state_mode="read_only", timeout_s=60, **where)
        assert again["result"] == expected["result"]
        client.call("close_session", session_name=name)
    print("%s: %d calls in %.1f s, slowest %.0f ms" % (name, CALLS, time.monotonic() - began, slowest))


@pytest.mark.parametrize("name", [name for name in LIBRARIES if name != "torch" and name not in OWN])
def test_of_the_index(served, environment, name):
    same_answers(served, name, venv_id=environment)


@pytest.mark.parametrize("name", ["numpy", "scipy", "pandas", "torch", "futures", "asyncio", "threading"])
def test_of_the_system(served, name):
    if name not in OWN and not importable(name):
        pytest.skip("/usr/bin/python3 has no " + name)
    same_answers(served, name)


def test_frames_of_the_index_have_tables(served, environment):
    with served.client() as client:
        for code in ("import pandas as pd\npd.DataFrame({'n': [1.5, None], 's': ['a', 'b']})", "import polars as pl\npl.DataFrame({'n': [1.5, None], 's': ['a', 'b']})",
                     "import pyarrow as pa\npa.table({'n': [1.5, None], 's': ['a', 'b']})"):
            answer = client.python(code, session_name="tables", state_mode="stateful", timeout_s=60, venv_id=environment)
            table = answer["display"][-1]["application/vnd.furca.table+json"]
            assert [row[table["labels"]:] for row in table["rows"]] == [["1.5", "a"], ["NaN" if "pandas" in code else "None", "b"]], code
        client.call("close_session", session_name="tables")
