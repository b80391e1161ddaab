"""Postgres does what the model does: the same random histories on both, step by step."""

from tests.contract.store import PostgresStore
from tests.model.lockstep import Pair
from tests.model.sides import Side
from tests.model.walks import walk

from queue_operator.testing.memory import MemoryStore


def test_postgres_does_what_the_model_does(model_dsn: str) -> None:
    async def pair() -> Pair:
        model = await Side.of("memory", MemoryStore())
        return Pair(model, await Side.of("postgres", await PostgresStore.on(model_dsn)))

    walk("memory and postgres", pair)
