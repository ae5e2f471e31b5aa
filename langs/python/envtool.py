"""The environment tool: a child of the engine that normalises specifications, builds environments and checks them.

It reads one request, a line of JSON {"op": name, …}, from descriptor 3 and answers on it with lines of JSON: {"progress": text}
as often as it likes, then one {"result": …} or {"error": text, "suggestion": text, "type": word, "lines": text}. With --stdio it uses
0 and 1. When the channel closes it ends all that it started, clears its scratch away and ends itself.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

CHANNEL = 3


FORM = "spec='[project]\\nname = \"env\"\\nversion = \"0\"\\ndependencies = []'"  # as suggestions write it


class Channel:
    """The engine's end of the conversation."""

    def __init__(self, read, write):
        self.read, self.write = read, write
        self._last, self._held = 0.0, None

    def request(self):
        data = b""
        while not data.endswith(b"\n"):
            chunk = os.read(self.read, 1 << 16)
            if not chunk:
                raise BrokenPipeError  # The engine had no more time for us.
            data += chunk
        return json.loads(data)

    def send(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.write, data):]

    def progress(self, text):
        self._held, self._last = None, time.monotonic()
        self.send({"progress": text[:400]})

    def tick(self, text=None):
        """Progress in lines of which not each need be seen: at most twenty a second, the last one never lost."""
        self._held = text or self._held
        if self._held and time.monotonic() - self._last > 0.05:
            self.progress(self._held)
        return 0.05 if self._held else None


def normalise(request, channel):
    import envspec
    try:
        return {"result": envspec.normalise(request["spec"], request.get("cache"))}
    except envspec.SpecError as error:
        return {"error": str(error), "suggestion": "%s This is taken, for example %s." % (error.suggestion, FORM),
                "type": "validation"}


def build(request, channel):
    import envbuild
    try:
        return {"result": envbuild.Build(request, channel).run()}
    except envbuild.BuildError as error:
        return {"error": str(error), "suggestion": error.suggestion, "type": "environment", "lines": error.lines}


def verify(request, channel):
    import envcheck
    damage = envcheck.damage(request["dir"], request["digest"])
    return {"result": {"sound": damage is None, "damage": damage}}


def discard(request, channel):
    import envcheck
    return {"result": {"removed": envcheck.discard(request["root"])}}


OPS = {"normalise": normalise, "build": build, "verify": verify, "discard": discard}


def main():
    channel = Channel(0, 1) if "--stdio" in sys.argv[1:] else Channel(CHANNEL, CHANNEL)
    os.set_inheritable(channel.read, False)
    os.umask(0o077)
    try:
        request = channel.request()
        answer = OPS[request["op"]](request, channel)
    except BrokenPipeError:
        return 1
    except OSError as error:
        answer = {"error": "the environment tool failed: %s" % error, "type": "environment",
                  "suggestion": "See the system error in the message; check the disk and the state directory."}
    except Exception as error:  # The engine is owed an answer, and its reader the cause.
        import traceback
        traceback.print_exc()
        answer = {"error": "the environment tool failed: %s: %s" % (type(error).__name__, error), "type": "internal",
                  "suggestion": "This is a bug of furca; please report it with the message."}
    try:
        channel.send(answer)
    except OSError:
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # Nothing is left to be torn down, and somebody waits.
