"""Shelter for our own code from what the user did to the interpreter."""

import sys


class Guard:
    """While our own code runs: the built-in names as they came, no tracing, room on the stack. The user's are put back after."""

    def __init__(self):
        import builtins
        self.names = builtins.__dict__
        self.keys = [name for name in self.names if name != "_"]
        self.values = [self.names[name] for name in self.keys]
        self.users = {}

    def __enter__(self):
        try:
            intact = list(map(self.names.get, self.keys)) == self.values
        except Exception:
            intact = False
        if not intact:
            for name, value in zip(self.keys, self.values):
                if self.names.get(name, self) is not value:
                    self.users[name] = self.names.get(name, self)
                    self.names[name] = value
        self.limit = sys.getrecursionlimit()
        if self.limit < 1000:
            sys.setrecursionlimit(1000)
        self.trace = sys.gettrace()
        if self.trace is not None:
            sys.settrace(None)
        self.profile = sys.getprofile()
        if self.profile is not None:
            sys.setprofile(None)

    def __exit__(self, *error):
        if self.limit < 1000:
            sys.setrecursionlimit(self.limit)
        if self.profile is not None:
            sys.setprofile(self.profile)
        if self.trace is not None:
            sys.settrace(self.trace)
        if not self.users:
            return
        users, self.users = self.users, {}
        for name, value in users.items():
            if value is self:
                self.names.pop(name, None)
            else:
                self.names[name] = value
