#!/bin/sh
# A first session from the command line. An engine is started in the background; `furca stop` ends it.
furca exec -s audit -m stateful -e 'rows = list(range(10))'
furca exec -s audit -m read_only -e 'rows.clear(); len(rows)'        # 0, in a clone of the session
furca exec -s audit -m read_only -e 'len(rows)'                      # 10: the session is as it was
furca exec -l bash -s build -m stateful -e 'cd $(mktemp -d); date > stamp; STAGE=1'
furca exec -l bash -s build -m read_only -e 'rm stamp; STAGE=2; ls'  # nothing
furca exec -l bash -s build -m read_only -e 'ls; echo $STAGE'        # stamp, 1: so are the shell and the disk
furca sessions
furca inspect audit
furca stop
