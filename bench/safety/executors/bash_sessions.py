"""Bash without furca: a bash that lives on, spoken to over a pipe. WAY=subshell reads it in a subshell, a plain fork; WAY=text takes a snapshot of it as
text (directory, variables, functions, aliases, options, as the seed of furca does it) and replays that in a fresh bash."""
import os
import select
import subprocess
import tempfile
import time

from adapter import READ_S, failed, serve

SNAPSHOT = """cd "$PWD" 2>/dev/null; {{ declare -p; declare -f; alias -p; shopt -p; set +o; umask -p; printf 'cd %q\\n' "$PWD"; }} >{file} 2>/dev/null"""

MARKS = 250  # the descriptor on which bash says that a call has ended


class Bash:
    def setup(self, code, language):
        self.folder = tempfile.mkdtemp(prefix="exec-")
        self.n = 0
        self.end, w = os.pipe()
        os.dup2(w, MARKS)
        os.close(w)
        self.bash = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, pass_fds=(MARKS,), text=True, bufsize=1)
        os.close(MARKS)
        return self.run("shopt -s expand_aliases\n" + code)

    def path(self, kind):
        return os.path.join(self.folder, "%d.%s" % (self.n, kind))

    def run(self, code, limit=READ_S):
        """Sources a file in the session; the marker with the status comes on a descriptor of its own."""
        self.n += 1
        with open(self.path("code"), "w") as file:
            file.write(code)
        try:
            self.bash.stdin.write("source %s >%s 2>%s; printf '%%s\\n' $? >&%d\n" % (*map(self.path, ("code", "out", "err")), MARKS))
            self.bash.stdin.flush()
        except OSError:
            return {**failed("bash has ended"), "lost": True}
        return self.ended(limit)

    def ended(self, limit):
        data, end = b"", time.monotonic() + limit
        while not data.endswith(b"\n"):
            if not select.select([self.end], [], [], max(0, end - time.monotonic()))[0]:
                return {**failed("no answer in time"), "lost": True}
            part = os.read(self.end, 4096)
            if not part:
                return {**failed("bash has ended"), "lost": True}
            data += part
        return self.told(int(data.split()[-1]), self.path("out"), self.path("err"))

    @staticmethod
    def told(status, out, err):
        def text(path):
            try:
                with open(path, errors="replace") as file:
                    return file.read(4000)
            except OSError:
                return ""
        return {"ok": True, "value": text(out)} if status == 0 else {**failed(text(err) or "status %d" % status), "value": text(out)}

    def read_only(self, code):
        if os.environ.get("WAY") == "subshell":
            return self.run("(\n%s\n)" % code)
        state = self.path("state")
        self.run(SNAPSHOT.format(file=state))
        out, err = self.path("fresh.out"), self.path("fresh.err")
        with open(self.path("fresh"), "w") as file:
            file.write("shopt -s expand_aliases\nsource %s 2>/dev/null\nsource %s\n" % (state, self.path("look")))
        with open(self.path("look"), "w") as file:
            file.write(code)
        with open(out, "w") as o, open(err, "w") as e:
            fresh = subprocess.Popen(["bash", "--norc", "--noprofile", self.path("fresh")], stdin=subprocess.DEVNULL, stdout=o, stderr=e)
        try:
            return self.told(fresh.wait(READ_S), out, err)
        except subprocess.TimeoutExpired:
            fresh.kill()
            return failed("no answer in time")

    def observe(self, code):
        return self.run(code)

    def close(self):
        self.bash.kill()


serve(Bash())
