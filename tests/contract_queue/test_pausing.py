"""Pauses, which are made on the store, in process."""

import pytest
from tests.contract_queue.conftest import IN_PROCESS, RIGS, Make

from queue_operator.testing.queue.pausing import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=IN_PROCESS, scope="session")
def make_rig(request: pytest.FixtureRequest) -> Make:
    return RIGS[request.param](request)
