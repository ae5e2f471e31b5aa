# doc/: documents; tables.py fills their tables from the sources, tests/check-tables.sh holds it
EXTRA_DIST += doc/tables.py
dist_doc_DATA = README.md ARCHITECTURE.md NEWS doc/attach.md doc/bash.md doc/bench-safety.md doc/bridge.md doc/coordinates.md doc/environments.md doc/errors.md doc/fork-safety.md doc/operations.md doc/performance.md doc/protocol.md doc/read-only.md
