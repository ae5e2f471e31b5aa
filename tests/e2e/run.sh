#!/bin/sh
# Runs the end-to-end tests: all, or the files and options given. 77: cannot run here.
# A test may take FURCA_TEST_SECONDS (300; needs python3-pytest-timeout) and all of them FURCA_E2E_MINUTES (35; 0: no bound): what hangs fails,
# with each thread's stack.
# In CI what failed is run once more, since a shared machine may have been too slow for a moment; what fails twice has failed, and
# what did not is named.
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
cache=$(mktemp -d) || exit 1
trap 'rm -rf "$cache"' EXIT
bound=
if /usr/bin/python3 -c 'import pytest_timeout' 2>/dev/null; then bound="--timeout=${FURCA_TEST_SECONDS:-300}"; fi
# shellcheck disable=SC2086
run() {
	timeout --foreground -s INT -k 60 "${FURCA_E2E_MINUTES:-35}m" /usr/bin/python3 -m pytest -q $bound --durations=10 \
		-o cache_dir="$cache/pytest" --rootdir="$here" -ra "$@"
}

if [ "$CI" = true ]; then
	run "$@" >"$cache/out" 2>&1
	status=$?
	if [ $status -eq 1 ]; then
		sed -E 's/^([0-9]+) failed, ([0-9]+ passed)/\2, \1 retried/' "$cache/out"
		echo "== once more, what failed"
		run --lf "$@"
		status=$?
	else
		cat "$cache/out"
	fi
else
	run "$@"
	status=$?
fi
[ $status -ne 5 ] || { echo "skipped: no test was selected"; status=77; }
exit $status
