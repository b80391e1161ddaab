"""The conformance suites, for everybody who writes a store.

Needs the extra `queue-operator[testing]`. The tests are in `backend`; a test module of yours
imports them and gives them a fixture `store` (see `store.Store`):

    from queue_operator.testing.backend import *

    @pytest.fixture
    async def store():
        store = await MyStore.make()
        yield store
        assert await store.faults() == []
        await store.close()

Those of a queue on top of a store are in `queue`, and take a fixture `rig` (`queue.rig.QueueRig`).
Every test names the clauses of the specifications that it proves (`clauses`).
"""

import sys

# Only where pytest runs: the lists of clauses can be read without it.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(
        f"{__name__}.backend",
        f"{__name__}.queue",
        f"{__name__}.driving",
        f"{__name__}.breaking",
        f"{__name__}.tasks",
    )
