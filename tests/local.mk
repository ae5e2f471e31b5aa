# tests/: scripts over the whole tree; unit tests stand in tests/unit and are declared by their room's local.mk
