"""State by pickle to a fresh process, which ends with the call. With DUMPS=dill by dill, which takes functions and classes too; with SANDBOX=1 the
process runs under bubblewrap: everything read-only, a fresh /tmp but for the working directory, no network, no other processes."""
import importlib
import io
import os
import pickle
import subprocess
import sys
import types

from adapter import READ_S, InProcess, answer_of, failed, serve

CHILD = """
import importlib, json, os, sys
sys.path.insert(0, sys.argv[2])
from adapter import new_session, run
names = new_session()
dumps = importlib.import_module(sys.argv[1])
state = dumps.load(sys.stdin.buffer)
os.chdir(state["cwd"])
for name, module in state["modules"].items():
    names[name] = importlib.import_module(module)
names.update(dumps.loads(state["names"]))
code = state["code"]
import json
os.write(int(sys.argv[3]), json.dumps(run(code, names)).encode() + b"\\n")
os._exit(0)
"""
SANDBOX = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", "/tmp/lab", "/tmp/lab",
           "--tmpfs", "/var/tmp", "--unshare-all", "--die-with-parent", "--new-session"]


class Plain(pickle.Pickler):
    """Refuses what the fresh process could not load: functions and classes of the session, which pickle takes by name."""

    def reducer_override(self, value):
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError("the fresh process does not know it")
        return NotImplemented


class OneShot(InProcess):
    def setup(self, code, language):
        answer = super().setup(code, language)
        self.dumps = importlib.import_module(os.environ.get("DUMPS", "pickle"))  # dill asks who __main__ is when it is imported
        return answer

    def state(self):
        """The names that survive, in one piece so that objects shared between names stay shared."""
        survivors, modules = {}, {}
        for name, value in self.names.items():
            if isinstance(value, types.ModuleType):
                modules[name] = value.__name__
            elif not name.startswith("__"):
                try:
                    self.dumps.dumps(value) if self.dumps is not pickle else Plain(io.BytesIO()).dump(value)
                    survivors[name] = value
                except Exception:
                    pass
        return {"names": self.dumps.dumps(survivors), "modules": modules, "cwd": os.getcwd()}

    def read_only(self, code):
        r, w = os.pipe()
        command = [sys.executable, "-c", CHILD, self.dumps.__name__, os.path.dirname(os.path.abspath(__file__)), str(w)]
        if os.environ.get("SANDBOX"):
            command = SANDBOX + command
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(w,)) as child:
            os.close(w)
            try:
                pickle.dump({**self.state(), "code": code}, child.stdin)
                child.stdin.close()
            except OSError as e:
                return failed(str(e))
            answer = answer_of(r)
            child.kill()
        return answer


serve(OneShot())
