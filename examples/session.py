"""A first session from Python: pip install ./bridge/python"""
import furca

with furca.Engine() as engine:  # connects to a running engine, or starts one
    audit = engine.session("audit")
    audit.run("rows = list(range(10))")
    print(audit.read("rows.clear(); len(rows)").value)  # 0, in a clone of the session
    print(audit.read("len(rows)").value)  # 10: the session is as it was

    @engine.capability("contacts.lookup", effect="read")
    def lookup(name):  # runs here, called by code in the session
        return name.lower() + "@example.org"

    print(audit.run("capabilities.contacts.lookup('Ada')").value)
    print(audit.run("import os; os.abort()", raise_errors=False).state)  # rolled_back: only that call is lost
    print(audit.read("len(rows)").value)  # 10
    audit.close()
