"""Plain fork(): the code runs in a child of the session's process."""
import json
import os

from adapter import InProcess, answer_of, run, serve


class Fork(InProcess):
    def read_only(self, code):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(w, json.dumps(run(code, self.names)).encode() + b"\n")
            os._exit(0)
        os.close(w)
        return answer_of(r, pid)


serve(Fork())
