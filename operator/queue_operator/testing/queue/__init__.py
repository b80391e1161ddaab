# ruff: noqa: F403
"""The conformance suite of the queue: `from queue_operator.testing.queue import *` in a test module
that has a fixture `rig` (see `rig.QueueRig`). One rig may serve a whole run, so the tests run in
the loop of the session: give the fixture `loop_scope="session"`, and the module
`pytestmark = pytest.mark.asyncio(loop_scope="session")`.

Not among them is `sessions`, which needs workers' streams, and with them a queue in process.
"""

from queue_operator.testing.queue.acknowledge import *
from queue_operator.testing.queue.cancel import *
from queue_operator.testing.queue.closing import *
from queue_operator.testing.queue.complete import *
from queue_operator.testing.queue.ending import *
from queue_operator.testing.queue.errors import *
from queue_operator.testing.queue.fail import *
from queue_operator.testing.queue.fixtures import desk
from queue_operator.testing.queue.invariants import *
from queue_operator.testing.queue.maintenance import *
from queue_operator.testing.queue.reading import *
from queue_operator.testing.queue.slots import *
from queue_operator.testing.queue.stop import *
from queue_operator.testing.queue.streaming import *
from queue_operator.testing.queue.submission import *
from queue_operator.testing.queue.suspending import *
from queue_operator.testing.queue.tokens import *
from queue_operator.testing.queue.unknown_stopped import *
from queue_operator.testing.queue.workers import *

__all__ = ["desk", *(name for name in dir() if name.startswith("test_"))]
