"""Lanes of shared memory where the ring cannot wait for futexes, as before Linux 6.7: a bell on the socket wakes the engine. The tests of capabilities once more."""
import json

import pytest

from conftest import Watched

# Their fixtures and tests run here again, with this module's engine.
from test_capabilities import *  # noqa: F401,F403
from test_protocol import test_thousands_of_calls_from_many_sessions  # noqa: F401


@pytest.fixture(scope="module")
def _watched(tmp_path_factory):
    config = tmp_path_factory.mktemp("bells") / "config"
    config.write_text(json.dumps({"lanes": "shared"}))
    watched = Watched("--config", str(config), env={"FURCA_FAULT": "probe_futex:1:fail"})
    yield watched
    found = watched.end()
    assert not found, "\n".join(found)
