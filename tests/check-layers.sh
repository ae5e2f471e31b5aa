#!/bin/sh
# A room includes only rooms below it; of the engine, bridge sees engine.h and loop.h; the engine sees of snapshot probe.h,
# clone.h (roles and barriers), init.h and upper.h, of langs lang.h; nothing of the engine links libpython.
# Usage: check-layers.sh [SRCDIR [BUILDDIR]]. Exit status 1 if an arrow points the wrong way.
top=${1:-${srcdir:-.}}
build=${2:-.}
cd "$top" || exit 2

find base bridge snapshot langs engine bench -name '*.[ch]' -o -name '*.def' | sort | xargs awk '
function room(path) {
	if (path ~ /^bridge\/wire\//) return "bridge/wire"
	sub(/\/.*/, "", path)
	return path
}
BEGIN {
	height["base"] = 0; height["bridge/wire"] = 1; height["snapshot"] = 2
	height["langs"] = 3; height["engine"] = 4; height["bridge"] = 5; height["bench"] = 6
	seen["engine"] = "^(snapshot/(probe|clone|init|upper)\\.h|snapshot/barrier\\.def|langs/lang\\.h)$"
	seen["bridge"] = "^engine/(engine|loop)\\.h$"
}
function complain(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad++ }
/^[ \t]*#[ \t]*include[ \t]*"/ {
	split($0, part, "\"")
	path = part[2]
	from = room(FILENAME)
	to = room(path)
	files++
	if (path == "config.h")
		next
	if (path == "furca.h" || path == "include/furca.h") {
		if (from != "bridge" && from != "bench") complain("only bridge and above know the public header")
		next
	}
	if (path !~ /\// || !(to in height))
		complain("\"" path "\" is not written from the top (\"room/file.h\")")
	else if (height[to] > height[from])
		complain(from " includes " path ", which is a room above it")
	else if (from == "engine" && (to == "langs" || to == "snapshot") && path !~ seen["engine"])
		complain("the engine sees runtimes only through langs/lang.h, and of snapshot probe.h, clone.h, init.h and upper.h; not " path)
	else if (from == "bridge" && to == "engine" && path !~ seen["bridge"])
		complain("bridge sees two headers of the engine, engine.h and loop.h; not " path)
	else if (from == "bridge" && to == "langs")
		complain("bridge reaches languages through the engine, not " path)
}
/^[ \t]*#[ \t]*include[ \t]*<Python\.h>/ {
	if (FILENAME !~ /^(langs\/python\/|bridge\/attach)/) complain("Python.h outside langs/python")
}
/^[ \t]*#[ \t]*include[ \t]*<liburing/ {
	if (room(FILENAME) != "engine" && room(FILENAME) != "bench" && FILENAME !~ /^snapshot\/probe/) complain("only the engine has a ring")
}
END {
	printf "%d includes of our own, %d against the layers\n", files, bad
	exit bad > 0
}' || status=1

cd - >/dev/null || exit 2
if [ -x "$build/furca" ] && command -v ldd >/dev/null; then
	program=$build/furca
	[ ! -x "$build/.libs/furca" ] || program=$build/.libs/furca
	if ldd "$program" | grep -q libpython; then
		echo "furca is linked with libpython"
		status=1
	fi
fi
exit ${status:-0}
