#!/bin/sh
# Runs the end-to-end tests: all, or the files and options given. 77: cannot run here.
here=$(cd "$(dirname "$0")" && pwd)
[ "$FURCA_E2E" != skip ] || { echo "skipped: FURCA_E2E=skip"; exit 77; }
if [ -z "$FURCA" ] && [ -x ./furca ]; then FURCA=$PWD/furca; fi
if [ ! -x "$FURCA" ]; then echo "skipped: furca is not built; set FURCA to the program"; exit 77; fi
if ! /usr/bin/python3 -c 'import pytest, msgpack' 2>/dev/null; then
	echo "skipped: needs python3-pytest and python3-msgpack for /usr/bin/python3"
	exit 77
fi
export FURCA PYTHONDONTWRITEBYTECODE=1
[ $# -gt 0 ] || set -- "$here"
/usr/bin/python3 -m pytest -q -p no:cacheprovider --rootdir="$here" -ra "$@"
status=$?
[ $status -ne 5 ] || { echo "skipped: no test was selected"; status=77; }
exit $status
