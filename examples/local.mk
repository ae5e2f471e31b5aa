# examples/: shown by README, run by tests/e2e/test_examples.py
EXTRA_DIST += examples/session.sh examples/session.py examples/session.c examples/attached.py examples/two_releases.py
