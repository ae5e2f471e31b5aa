"""A deep copy of the globals. Modules are shared; what cannot be copied is left out."""
import copy
import types

from adapter import InProcess, run, serve


class Deep(InProcess):
    def read_only(self, code):
        names, seen = {}, {}
        for name, value in list(self.names.items()):
            try:
                names[name] = value if isinstance(value, types.ModuleType) or name == "__builtins__" else copy.deepcopy(value, seen)
            except Exception:
                pass
        return run(code, names)


serve(Deep())
