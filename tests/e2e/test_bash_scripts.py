"""GNU bash's own test scripts as code of a session: output and status must be those of `bash script`, stateful and read-only.

Each run has a /tmp of its own, for the scripts use fixed names there, and the reference of a read-only call runs as a copy does,
without capabilities. Two differences are not the sessions' and are taken out on both sides: RACES are lines whose output hangs
on whether a coprocess has ended already, OURS are the builtins that complete.tests finds listed.

All scripts take some ten minutes: by default those of QUICK run; FURCA_BASH_SCRIPTS selects by another regular expression, "." all.
"""
import os
import re
import shutil
import signal
import subprocess

import pytest

import bashsource
import hostlib
from hostlib import COPY, SESSION, Surface
from bashhost import BASH, BUILTIN

SECONDS = 90
QUICK = "^(alias|array|attr|case|cond|comsub|errors|exec|extglob2|getopts|heredoc|invert|more-exp|posix2|redir|rhs|set-e|tilde|vredir)"
NO_SUFFIX = ("execscript", "array-at-star", "dollar-at-star")
RACES = {"nameref11.sub": (b"coproc RO { :; }; declare -p RO_PID; wait;", b"coproc RO { :; }; wait;")}
OURS = {"complete.tests": rb"(?m)^(capability|furca-fn|furca-reset)\n"}
OWN_TMP = ("unshare", "--mount", "sh", "-ec", 'mount --make-rprivate /; mount --bind "$1" /tmp; shift; exec "$@"', "own-tmp")
NO_CAPABILITIES = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture(scope="module")
def tree():
    try:
        return bashsource.source(BASH)
    except bashsource.Missing as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def helpers(tree, tmp_path_factory):
    return bashsource.helpers(tree, str(tmp_path_factory.mktemp("helpers")))


class Place:
    """A fresh directory with the scripts, their helpers and the host's files; inside it is /tmp, where the machine lets it be."""

    def __init__(self, tree, helpers, tmp_path):
        self.home = os.path.join(str(tmp_path), "home")
        shutil.rmtree(self.home, ignore_errors=True)
        tests = self.under("place/tests")
        shutil.copytree(os.path.join(tree, "tests"), tests)
        for name, (racy, settled) in RACES.items():
            self.change(os.path.join(tests, name), lambda text: text.replace(racy, settled))
        shutil.copytree(helpers, self.under("helpers"))
        for path in (BUILTIN, hostlib.surface_init()):
            shutil.copy(path, self.home)
        self.wrap = [*OWN_TMP, self.home]
        self.inside = "/tmp"
        if subprocess.run([*self.wrap, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.wrap, self.inside = [], self.home
        self.tests = self.inside + "/place/tests"
        self.env = bashsource.environment(BASH, self.inside + "/helpers")

    def under(self, path):
        return os.path.join(self.home, path)

    @staticmethod
    def change(path, how):
        if os.path.exists(path):
            with open(path, "rb+") as f:
                text = how(f.read())
                f.seek(0)
                f.write(text)
                f.truncate()


def scripts(tree):
    names = [n for n in os.listdir(os.path.join(tree, "tests")) if n.endswith(".tests") or n in NO_SUFFIX]
    return sorted(n for n in names if re.search(os.environ.get("FURCA_BASH_SCRIPTS", QUICK), n))


def plain(name, role, *where):
    """What a bash of its own makes of the script: its output and status."""
    place = Place(*where)
    # A session's process ignores no signal at first, also where the engine was started in the background of a script.
    wrap = [*place.wrap, "env", "--default-signal=INT,QUIT", "-C", place.tests, *(NO_CAPABILITIES if role == COPY and os.geteuid() == 0 else ())]
    with subprocess.Popen([*wrap, BASH, "./" + name], env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
        return out, process.returncode if process.returncode >= 0 else 128 - process.returncode


def hosted(name, role, *where):
    """The script as one call of a host that was started from a file of that name, so that $0 and BASH_SOURCE agree."""
    place = Place(*where)
    path = place.under("place/tests/" + name)
    with open(path, "rb") as f:
        code = f.read()
    with open(path, "w") as f:
        f.write("enable -f '%s/furca-bash.so' furca_host capability furca-fn furca-reset && furca_host\n" % place.inside)
    surface = Surface(wrap=place.wrap, program=place.inside + "/surface_init")
    zygote = surface.spawn([BASH, "./" + name], env=place.env, cwd=place.tests)
    with open(path, "wb") as f:
        f.write(code)
    session = clone = zygote.clone(SESSION)
    try:
        session.run("shopt -u expand_aliases; unset OLDPWD; :")
        if role == COPY:
            clone = session.copy()
        result = clone.run(code.replace(b"\0", b"").decode("utf-8", "surrogateescape"), timeout=SECONDS, merge=True, keep=True)
        out = result.out
        lost = not session.alive()
        if role == SESSION and not lost:
            out += what_closing_writes(session)
        return re.sub(OURS.get(name, rb"(?!)"), b"", out), result.status, result.how, lost
    finally:
        for host in {clone, session, zygote}:
            host.kill()
        surface.end()


def what_closing_writes(session):
    """The EXIT trap's output, which goes to the last call's pipe; background jobs may hold that open."""
    session.end()
    fd = session.late[max(session.late)][0]
    os.set_blocking(fd, False)
    out = b""
    try:
        while True:
            data = os.read(fd, 1 << 16)
            if not data:
                return out
            out += data
    except BlockingIOError:
        return out


def masked(out):
    out = re.sub(rb"/tmp/[^ ]*/place", b"/tmp/place", out)
    out = re.sub(rb"(?m)(line \d+: *)\d+( +(?:Killed|Terminated|Hangup|Done))", rb"\1PID\2", out)
    return re.sub(rb"process group \(\d+\)", b"process group (PID)", out)


def keep(name, role, **outputs):
    directory = os.environ.get("FURCA_BASH_DIFFS")
    for kind, out in outputs.items() if directory else ():
        with open(os.path.join(directory, "%s.%d.%s" % (name, role, kind)), "wb") as f:
            f.write(masked(out))


@pytest.mark.parametrize("role", [SESSION, COPY], ids=["stateful", "read_only"])
def test_scripts(role, tree, helpers, tmp_path):
    different, lost, same = {}, [], 0
    for name in scripts(tree):
        for _ in range(3):
            where = tree, helpers, tmp_path
            ours, reference = hosted(name, role, *where), plain(name, role, *where)
            if ours[3]:
                lost.append(name)
            if masked(reference[0]) == masked(ours[0]) and (reference[1] == ours[1] or role == SESSION):
                same += 1
                break
        else:
            different[name] = ours[1:3] + (reference[1],)
        if ours[0] != reference[0]:
            keep(name, role, plain=reference[0], ours=ours[0])
    print("%d scripts the same, different: %r" % (same, different))
    assert lost == []
    assert different == {}
