#!/bin/sh
# furca bench speed: finds the benchmark's files, beside this program where installed, in the source tree from a build folder.
here=$(cd "$(dirname "$0")" && pwd)
files=$here/bench/speed
[ -f "$files/run.py" ] || files=$(cd "$here" && cd "$(sed -n 's/^srcdir = //p' Makefile)" && pwd)/bench/speed
: "${FURCA_LIBEXEC:=$here}"
export FURCA_LIBEXEC
exec "${PYTHON:-/usr/bin/python3}" "$files/run.py" "$@"
