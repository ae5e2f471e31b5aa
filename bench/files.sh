#!/bin/sh
# furca bench safety, furca bench speed, by the program's name: finds the benchmark's files, beside this program where installed, in the
# source tree from a build folder.
here=$(cd "$(dirname "$0")" && pwd)
name=${0##*/furca-bench-}
files=$here/bench/$name
[ -f "$files/run.py" ] || files=$(cd "$here" && cd "$(sed -n 's/^srcdir = //p' Makefile)" && pwd)/bench/$name
: "${FURCA_LIBEXEC:=$here}"
export FURCA_LIBEXEC
exec "${PYTHON:-/usr/bin/python3}" "$files/run.py" "$@"
