"""Workers' streams, in process: reconnecting, draining, heartbeats and cancels on our rigs."""

import pytest
from tests.contract_queue.conftest import IN_PROCESS, RIGS, Make

from queue_operator.testing.queue.sessions import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=IN_PROCESS, scope="session")
def make_rig(request: pytest.FixtureRequest) -> Make:
    return RIGS[request.param](request)
