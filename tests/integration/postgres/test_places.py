"""Places on Postgres: how far is counted."""

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import AHEAD_BOUND, Place
from queue_operator.domain.job import Job


async def test_a_place_is_counted_up_to_a_bound(backend: PostgresBackend, namespace: str) -> None:
    def job(name: str) -> Job:
        return Job(id=name, type="t", namespace=namespace)

    count = AHEAD_BOUND // 2 - 1
    for half in ("a", "b"):
        await backend.enqueue_jobs([job(f"{half}{n}") for n in range(count)])
    for place in (
        Place(ahead=AHEAD_BOUND - 2),
        Place(ahead=AHEAD_BOUND - 1),
        Place(ahead=AHEAD_BOUND),
        Place(ahead=AHEAD_BOUND, ahead_is_exact=False),
    ):
        await backend.enqueue_job(job(f"{place}"))
        assert await backend.place_of(f"{place}", namespace=namespace) == place
