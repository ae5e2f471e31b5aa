#!/bin/sh
# How `make check` runs a test: within FURCA_TEST_MINUTES (10; 0: without a bound), so that one that hangs fails. The end-to-end tests have
# bounds of their own.
minutes=${FURCA_TEST_MINUTES:-10}
case $1 in */e2e/run.sh) minutes=0 ;; esac
exec timeout --foreground -k 10 "${minutes}m" "$@"
