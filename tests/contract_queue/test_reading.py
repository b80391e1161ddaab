"""GetJob, GetJobStats and the fields of a job on our rigs."""

import pytest

from queue_operator.testing.queue.reading import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
