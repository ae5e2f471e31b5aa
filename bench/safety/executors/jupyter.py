"""A Jupyter kernel (ipykernel). It knows no read-only call: a user's nearest is a cell that runs the code on a deep copy of the namespace."""

from jupyter_client.manager import KernelManager

from adapter import READ_S, failed, serve

CELL = """
def __read_only(code):
    import ast, copy, types
    names = {{}}
    for name, value in list(globals().items()):
        try:
            names[name] = value if isinstance(value, types.ModuleType) else copy.deepcopy(value)
        except Exception:
            pass
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<call>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<call>", "eval"), names) if last else None
__read_only({code!r})
"""


class Jupyter:
    def setup(self, code, language):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(extra_arguments=["--IPKernelApp.log_level=CRITICAL"])
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=30)
        return self.run(code, 20)

    def run(self, code, limit):
        """One cell; its value comes as an execute_result, before the kernel says that it is idle."""
        value, error = "None", None
        msgid = self.client.execute(code, store_history=False)
        try:
            while True:
                message = self.client.get_iopub_msg(timeout=limit)
                if message["parent_header"].get("msg_id") != msgid:
                    continue
                kind, content = message["msg_type"], message["content"]
                if kind == "execute_result":
                    value = content["data"]["text/plain"]
                elif kind == "error":
                    error = "%s: %s" % (content["ename"], content["evalue"])
                elif kind == "status" and content["execution_state"] == "idle":
                    break
        except Exception:
            error = "the kernel died" if not self.manager.is_alive() else "no answer in time"
        return failed(error) if error else {"ok": True, "value": value}

    def read_only(self, code):
        return self.run(CELL.format(code=code), READ_S)

    def observe(self, code):
        answer = self.run(code, 5)
        if not answer["ok"] and ("died" in answer["error"] or "in time" in answer["error"]):
            answer["lost"] = True
        return answer

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


serve(Jupyter())
