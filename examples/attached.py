"""An agent's own interpreter as a session: pip install ./bridge/python"""
import furca

rows = list(range(10))

with furca.attach() as agent:  # this process is session 0 of a running engine, or of one that is started
    print(agent.read("rows.clear(); len(rows)").value)  # 0, in a clone of this process
    print(len(rows))  # 10
    agent.run("rows.append(10)")  # here
    print(len(rows))  # 11
