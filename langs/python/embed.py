"""Writes modules.h: the Python sources given as arguments, in that order, as C strings. Run by the build."""

import os
import sys

out = ["/* Made by embed.py from the .py files beside it. */", "#pragma once", "",
       "struct furca_python_module {", "\tconst char *name, *text;", "};", ""]
table = []
for path in sys.argv[2:]:
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, "rb") as file:
        data = file.read()
    compile(data, path, "exec")
    out.append(f"static const char furca_python_{name}[] = {{")
    data += b"\0"
    for at in range(0, len(data), 24):
        out.append("\t" + "".join(f"{byte}," for byte in data[at:at + 24]))
    out.append("};")
    table.append(f'\t{{"{name}", furca_python_{name}}},')
out += ["", "static const struct furca_python_module furca_python_modules[] = {", *table, "};", ""]
text = "\n".join(out)
with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
    file.write(text)
os.replace(sys.argv[1] + ".new", sys.argv[1])
