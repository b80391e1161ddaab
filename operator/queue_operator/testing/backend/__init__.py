# ruff: noqa: F403
"""The conformance suite of a store: `from queue_operator.testing.backend import *` in a test
module that has fixtures `store` and, for the random histories, `make_store`: a function that
gives an awaitable of a new store. The tests are coroutines: set `asyncio_mode = "auto"`.

Not among them are the tests of what only some stores are, which those import beside it: `events`
of an EventLog, `cancel_inbox` of a CancelInbox, `progress` of a ProgressSink, `checkpoints`,
`spawning` of a Spawner, `logs` of JobLogs, `sessions` of Sessions, `statistics` of Statistics,
`watching` of Watching, `quotas` of Usages, `pauses` of Pauses, `suspensions` of Suspensions,
`places` of Places, `webhooks` of Webhooks, `owners_plane` of all that workers may say beside
outcomes and heartbeats.
"""

from queue_operator.testing.backend.acknowledge import *
from queue_operator.testing.backend.bad_input import *
from queue_operator.testing.backend.bad_jobs import *
from queue_operator.testing.backend.batches import *
from queue_operator.testing.backend.cancel import *
from queue_operator.testing.backend.cancelled import *
from queue_operator.testing.backend.claim import *
from queue_operator.testing.backend.close import *
from queue_operator.testing.backend.coming_back import *
from queue_operator.testing.backend.complete import *
from queue_operator.testing.backend.delete import *
from queue_operator.testing.backend.dependencies import *
from queue_operator.testing.backend.dequeue import *
from queue_operator.testing.backend.errors import *
from queue_operator.testing.backend.fail import *
from queue_operator.testing.backend.failure import *
from queue_operator.testing.backend.failures import *
from queue_operator.testing.backend.fixtures import backend
from queue_operator.testing.backend.histories import *
from queue_operator.testing.backend.history import *
from queue_operator.testing.backend.idempotency import *
from queue_operator.testing.backend.invariants import *
from queue_operator.testing.backend.leases import *
from queue_operator.testing.backend.maintenance import *
from queue_operator.testing.backend.owners import *
from queue_operator.testing.backend.races import *
from queue_operator.testing.backend.reading import *
from queue_operator.testing.backend.repeats import *
from queue_operator.testing.backend.search import *
from queue_operator.testing.backend.semantics_guarantees import *
from queue_operator.testing.backend.semantics_leases import *
from queue_operator.testing.backend.semantics_retry import *
from queue_operator.testing.backend.semantics_transitions import *
from queue_operator.testing.backend.stop import *
from queue_operator.testing.backend.submission import *
from queue_operator.testing.backend.tokens import *
from queue_operator.testing.backend.traces import *
from queue_operator.testing.backend.transitions import *
from queue_operator.testing.backend.unresponsive import *
from queue_operator.testing.backend.update import *
from queue_operator.testing.backend.whole import *

__all__ = ["backend", *(name for name in dir() if name.startswith("test_"))]
