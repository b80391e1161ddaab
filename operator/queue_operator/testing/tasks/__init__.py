"""The conformance suite for task stores.

Give a fixture `task_store` (see `TaskStore`), import everything from here into a test module,
and run pytest with `asyncio_mode = "auto"`:

from queue_operator.testing.tasks import *
"""

from queue_operator.testing.tasks.concurrency import *  # noqa: F403
from queue_operator.testing.tasks.lifecycle import *  # noqa: F403
from queue_operator.testing.tasks.refusals import *  # noqa: F403
from queue_operator.testing.tasks.reserving import *  # noqa: F403
from queue_operator.testing.tasks.results import *  # noqa: F403
from queue_operator.testing.tasks.store import TaskClock as TaskClock
from queue_operator.testing.tasks.store import TaskStore as TaskStore
from queue_operator.testing.tasks.timestamps import *  # noqa: F403
