"""Builds an environment: scratch directory under a lock, packages by uv or by venv and pip, ready mark last, rename.

Whoever is killed anywhere in between leaves a scratch directory that counts for nothing and is cleared by the next one.
"""
import collections
import ctypes
import glob
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import envcheck
import envpython

PR_SET_CHILD_SUBREAPER = 36
LINES_KEPT = 25

# What the tools say, and what it means for who wrote the specification: (pattern, suggestion). The first that matches counts. pip calls an index that
# it could not reach one without the package as well.
CAUSES = (
    (r"No space left on device|Errno 28|os error 28", "Free space on the disk that holds the state directory, or lower what is collected."),
    (r"Disk quota exceeded", "Free space in the quota of the state directory."),
    (r"do not match the hashes|hash mismatch|Hash mismatch|THESE PACKAGES DO NOT MATCH", "A hash does not fit the file; correct the --hash of that requirement."),
    (r"all requirements must have their versions pinned|hashes are required", "With hashes every package, also those that others need, must be "
     "listed with == and its --hash."),
    (r"NewConnectionError|Failed to establish|Temporary failure in name resolution|Network is unreachable|dns error|error sending request|"
     r"ConnectTimeout|ReadTimeout|ProxyError|Connection refused|Could not fetch|Failed to fetch",
     "The package index cannot be reached; check the network or the index settings in [tool.uv], or use find-links."),
    (r"No matching distribution|Could not find a version|not found in the package registry|no versions of|no version of|was not found in",
     "Correct the package's name or version, or choose with requires-python a Python that it is published for."),
    (r"ResolutionImpossible|conflicting dependencies|requirements are unsatisfiable|No solution found",
     "The requirements contradict one another or this Python; loosen a version or change requires-python."),
    (r"not a valid|Invalid wheel|is not a supported wheel", "The wheel does not fit this Python or machine; choose another file or requires-python."),
    (r"No such file or directory|does not exist|Distribution not found at|not installable|Neither 'setup.py' nor 'pyproject.toml'", "A path of the specification does not exist or holds no package; correct it."),
    (r"gcc|cc1|fatal error:|error: command|build_wheel|metadata-generation-failed|Failed to build|Failed building",
     "A package has no wheel for this Python and does not compile here; pin a version that has one, choose another requires-python, "
     "or install what its build needs."),
)
NETWORK = next(pattern for pattern, suggestion in CAUSES if "cannot be reached" in suggestion)


class BuildError(Exception):
    def __init__(self, text, suggestion, lines=""):
        super().__init__(text)
        self.suggestion, self.lines = suggestion, lines


class Cancelled(BaseException):
    """The engine has closed the channel."""


def fault(point):
    """The failure points of base/fault.def that lie in a build: FURCA_FAULT=name[:kill|fail|stop]."""
    name, *rest = os.environ.get("FURCA_FAULT", "").split(":")
    if name == point:
        if "fail" in rest:
            raise OSError(5, "failure point %s" % point)
        os.kill(os.getpid(), signal.SIGSTOP if "stop" in rest else signal.SIGKILL)


def end_children():
    """Kills and reaps everything below this process, which is a subreaper, until nothing is left."""
    while True:
        with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as file:
            for pid in file.read().split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Runner:
    """Runs the tools of a build one by one, passes their lines on, and watches the channel meanwhile."""

    def __init__(self, channel, folder):
        self.channel, self.folder = channel, folder
        self.lines = collections.deque(maxlen=LINES_KEPT)
        self.environ = {key: value for key, value in os.environ.items()
                        if not key.startswith(("PYTHON", "CONDA_", "VIRTUAL_ENV")) and key != "__PYVENV_LAUNCHER__"}
        self.environ.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_REQUIRE_VIRTUALENV="0", NO_COLOR="1", UV_NO_PROGRESS="1",
                            PYTHONNOUSERSITE="1", TMPDIR=os.path.join(folder, ".tmp"))
        # A user's pip settings may name an index or a certificate and hold; where to install is ours.
        for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_CONSTRAINT", "UV_PYTHON",
                     "UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "PIP_PYTHON", "PIP_LOG"):
            self.environ.pop(name, None)

    def run(self, argv):
        """The exit status. Cancelled where the engine has gone."""
        self.lines.clear()
        os.makedirs(self.environ["TMPDIR"], exist_ok=True)
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.environ["TMPDIR"],
                                 env=self.environ, start_new_session=True, preexec_fn=envpython.die_with_parent)
        with child.stdout, selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            selector.register(self.channel.read, selectors.EVENT_READ)
            rest = b""
            while True:
                ready = {key.fileobj for key, _ in selector.select(self.channel.tick())}
                if self.channel.read in ready and not os.read(self.channel.read, 4096):
                    raise Cancelled
                if child.stdout in ready:
                    data = os.read(child.stdout.fileno(), 1 << 16)
                    *whole, rest = (rest + data).split(b"\n")
                    for line in whole + ([rest] if not data and rest else []):
                        self._line(line.decode("utf-8", "replace").rstrip())
                    if not data:
                        break
        return child.wait()

    def _line(self, line):
        if line.strip():
            self.lines.append(line[:500])
            self.channel.tick(line.strip())

    def said(self):
        return "\n".join(self.lines)


class Build:
    """One build. request: {root, digest, canonical: text, tool: "uv"|"pip"|path|null}."""

    def __init__(self, request, channel):
        self.channel, self.root, self.digest = channel, request["root"], request["digest"]
        self.spec = json.loads(request["canonical"])
        self.final = os.path.join(self.root, envcheck.key_of(self.digest))
        self.scratch = os.path.join(self.root, envcheck.scratch_of(self.digest))
        self.python = os.path.join(self.scratch, "bin", "python")
        self.runner = Runner(channel, self.scratch)
        self.tool = request.get("tool") or os.environ.get("FURCA_ENV_TOOL") or ""

    def run(self):
        """The result: {dir, bytes, files, tool}. Leaves nothing but a whole environment behind."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        lock = envcheck.Lock(self.root, self.digest[:19])
        if not lock.take(wait=False):
            self.channel.progress("waiting for another build of this environment")
            lock.take(wait=True)
        try:
            if os.path.lexists(self.final) and envcheck.damage(self.final, self.digest) is None:
                mark = envcheck.read_mark(self.final)
                return {"dir": self.final, "bytes": mark["bytes"], "files": mark["files"], "tool": mark["tool"]}
            return self._build()
        except Cancelled:
            end_children()
            sys.exit(1)
        finally:
            end_children()
            envcheck.remove_tree(self.scratch)
            lock.drop()

    def _build(self):
        envcheck.remove_tree(self.scratch)
        os.mkdir(self.scratch, 0o700)
        fault("env_scratch")
        self._make_venv()
        fault("env_venv")
        uv = self._uv()
        if self.spec["requirements"]:
            (self._install_uv if uv else self._install_pip)(uv)
        envcheck.remove_tree(self.runner.environ["TMPDIR"])
        self._move_paths()
        files, size = envcheck.write_list(self.scratch)
        fault("env_installed")
        mark = {"digest": self.digest, "python": self.spec["python"], "tool": "uv" if uv else "pip", "files": files, "bytes": size,
                "built_at": time.time()}
        envcheck.write_mark(self.scratch, mark)
        fault("env_rename")
        if os.path.lexists(self.final):
            os.rename(self.final, os.path.join(self.root, ".trash-%s-%d" % (self.digest[:20], os.getpid())))
        fault("env_trashed")
        os.rename(self.scratch, self.final)
        fault("env_ready")
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(folder)
        os.close(folder)
        self.channel.progress("ready: %d files, %.1f MB" % (files, size / 1e6))
        return {"dir": self.final, "bytes": size, "files": files, "tool": mark["tool"]}

    def _make_venv(self):
        executable = self.spec["python"]["executable"]
        if not os.access(executable, os.X_OK):
            raise BuildError("the interpreter %s, chosen for this environment, is gone" % executable,
                             "Install it again, or create the environment anew so that another one is chosen.")
        self.channel.progress("making an environment with Python %s (%s)" % (self.spec["python"]["version"], executable))
        # --clear would remove the scratch's own content only; the directory is new, so nothing of it is needed.
        if self.runner.run([executable, "-I", "-m", "venv", "--without-pip", self.scratch]):
            raise self._failed("making the virtual environment")

    def _uv(self):
        """The path of uv where it is to be used, else None."""
        if self.tool == "pip":
            return None
        if os.path.isabs(self.tool):
            return self.tool
        home = os.path.expanduser("~")
        path = shutil.which("uv") or next((path for path in (home + "/.local/bin/uv", home + "/.cargo/bin/uv") if os.access(path, os.X_OK)), None)
        if self.tool == "uv" and path is None:
            raise BuildError("uv was asked for and is not found", "Install uv, or unset FURCA_ENV_TOOL.")
        return path

    def _write(self, name, lines):
        path = os.path.join(self.runner.environ["TMPDIR"], name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        return path

    def _where(self):
        """Options, the same for uv and pip, that say where packages come from."""
        index, out = self.spec["index"], []
        if index["default"]:
            out += ["--index-url", index["default"]]
        for url in index["extra"]:
            out += ["--extra-index-url", url]
        for url in index["find_links"]:
            out += ["--find-links", url]
        return out + (["--no-index"] if index["no_index"] else [])

    def _what(self):
        out = ["-r", self._write("requirements.txt", self.spec["requirements"])]
        if self.spec["constraints"]:
            out += ["-c", self._write("constraints.txt", self.spec["constraints"])]
        if any(" --hash=" in one for one in self.spec["requirements"]):
            out += ["--require-hashes"]
        return out

    def _failed(self, step):
        said = self.runner.said()
        suggestion = next((text for pattern, text in CAUSES if re.search(pattern, said)), "Read the tool's last lines and change the specification.")
        told = [line.strip() for line in self.runner.lines]
        last = (next((line for line in told if re.match(r"cause:|ERROR: Cannot install|ERROR: THESE", line)), "")
                or next((line for line in reversed(told) if re.match(r"error|ERROR|×", line)), "")
                or (told[-1] if told else "the tool said nothing"))
        return BuildError("building the environment failed while %s: %s" % (step, last[:300]), suggestion, said)

    def _install_uv(self, uv):
        argv = [uv, "pip", "install", "--python", self.python, "--compile-bytecode", "--link-mode", "copy"] + self._where() + self._what()
        if self.spec["overrides"]:
            argv += ["--overrides", self._write("overrides.txt", self.spec["overrides"])]
        self.channel.progress("installing %d requirements with uv" % len(self.spec["requirements"]))
        if not self.runner.run(argv):
            return
        failed = self._failed("installing packages with uv")
        if re.search(NETWORK, self.runner.said()):
            self.channel.progress("the index cannot be reached; trying with what is cached")
            if not self.runner.run(argv + ["--offline"]):
                return
        raise failed

    def _pip(self):
        """How pip is started in the new environment without being in it: from the wheel that comes with the interpreter."""
        code = ("import ensurepip, sysconfig, glob, os\n"
                "dirs = [sysconfig.get_config_var('WHEEL_PKG_DIR') or '', os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'), "
                "'/usr/share/python-wheels']\n"
                "print(next((w for d in dirs if d for w in sorted(glob.glob(os.path.join(d, 'pip-*.whl')))), ''))")
        asked = subprocess.run([self.spec["python"]["executable"], "-I", "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               preexec_fn=envpython.die_with_parent)
        wheel = asked.stdout.strip()
        if not wheel:
            raise BuildError("neither uv nor pip's wheel is found for %s" % self.spec["python"]["executable"],
                             "Install uv, or the package that holds ensurepip (python3-venv on Debian and Ubuntu).")
        # Unpacked, so that it is compiled once and its build environments find it as files.
        folder = os.path.join(self.root, ".tools", os.path.basename(wheel)[:-4])
        if not os.path.isdir(folder):
            scratch = "%s.%d" % (folder, os.getpid())
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(scratch)
            try:
                os.rename(scratch, folder)
            except OSError:
                envcheck.remove_tree(scratch)  # Another build was first.
        return [self.python, os.path.join(folder, "pip")]

    def _install_pip(self, _):
        if self.spec["overrides"]:
            raise BuildError("tool.uv.override-dependencies needs uv, which is not found", "Install uv, or use constraint-dependencies.")
        pip, wheels = self._pip(), os.path.join(self.runner.environ["TMPDIR"], "wheels")
        # Two steps: what must be fetched or compiled, then the installation, which needs neither index nor compiler.
        argv = pip + ["wheel", "--wheel-dir", wheels, "--progress-bar", "off"] + self._what()
        self.channel.progress("fetching %d requirements with pip" % len(self.spec["requirements"]))
        if self.runner.run(argv + self._where()):
            failed = self._failed("fetching packages with pip")
            # An index that pip cannot reach may look to it like one that has nothing.
            unreached = re.search(NETWORK + r"|from versions: none", self.runner.said())
            if not unreached or not os.path.isdir(self._kept()):
                raise failed
            self.channel.progress("the index has none, or cannot be reached; trying with wheels kept from before")
            if self.runner.run(argv + ["--no-index", "--find-links", self._kept()]):
                raise failed
        files = sorted(glob.glob(os.path.join(glob.escape(wheels), "*.whl")))
        self.channel.progress("installing %d packages" % len(files))
        if files and self.runner.run(pip + ["install", "--no-deps", "--no-index", "--no-warn-script-location", "--progress-bar", "off"] + files):
            raise self._failed("installing packages with pip")
        self._keep(files)

    def _kept(self):
        return os.path.join(self.root, ".wheels", self.spec["python"]["soabi"])

    def _keep(self, files):
        """Keeps wheels for a time without network, but for those whose origin is a path or a URL of the specification."""
        index = self.spec["index"]
        direct = {re.match(r"[a-z0-9-]+", one)[0] for one in self.spec["requirements"] if " @ " in one}
        if index["default"] or index["extra"] or index["find_links"]:
            return  # What one index has under a name must not serve an environment that asks another.
        os.makedirs(self._kept(), exist_ok=True)
        for file in files:
            name = re.sub(r"[-_.]+", "-", os.path.basename(file).split("-")[0]).lower()
            if name not in direct:
                shutil.move(file, os.path.join(self._kept(), os.path.basename(file)))

    def _move_paths(self):
        """Scripts, .pth files and the like name the scratch directory: they get the final one, which is as long."""
        old, new = self.scratch.encode(), self.final.encode()
        assert len(old) == len(new)
        folders = [os.path.join(self.scratch, "bin")] + glob.glob(os.path.join(glob.escape(self.scratch), "lib*", "python*", "site-packages"))
        paths = [os.path.join(self.scratch, "pyvenv.cfg")]
        for folder in folders:
            paths += [entry.path for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        for path in paths:
            with open(path, "rb") as file:
                content = file.read()
            if old in content:
                stat = os.stat(path)
                with open(path, "wb") as file:
                    file.write(content.replace(old, new))
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
