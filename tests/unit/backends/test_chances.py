"""Tokens of the stores in this process, and the numbers that Postgres makes its tokens of."""

import uuid

import pytest

from queue_operator.backends.chances import SYSTEM, chances, tokens
from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Demand, Job


class Source:
    """Gives out bytes that the test knows, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.drawn: list[bytes] = []

    def __call__(self, count: int) -> bytes:
        self.drawn.append(SYSTEM(count))
        return self.drawn[-1]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_numbers_are_the_bytes_of_one_draw(count: int) -> None:
    source = Source()
    numbers = chances(source, count)
    assert [n.to_bytes(8, "big", signed=True) for n in numbers] == [
        source.drawn[0][8 * n : 8 * n + 8] for n in range(count)
    ]
    assert len(source.drawn) == 1


def test_a_claim_draws_once_and_gives_each_job_bytes_of_its_own() -> None:
    source = Source()
    assert [uuid.UUID(one).version for one in tokens(source, 3)] == [4, 4, 4]
    assert [len(drawn) for drawn in source.drawn] == [48]


async def test_the_memory_store_draws_once_for_each_claim() -> None:
    source = Source()
    backend = MemoryBackend(entropy=source)
    await backend.enqueue_jobs([Job(id=str(n), type="t") for n in range(5)])
    demand = Demand(assignee_id="w", limit=3)
    first = await backend.claim([demand], lease_ttl_s=60)
    second = await backend.claim([demand], lease_ttl_s=60)
    assert [len(drawn) for drawn in source.drawn] == [48, 32]
    drawn = b"".join(source.drawn)
    for place, one in enumerate([*first, *second]):
        own = drawn[16 * place : 16 * place + 16]
        assert one.token == str(uuid.UUID(bytes=own, version=4))
