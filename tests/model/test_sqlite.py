"""SQLite does what the model does: the same random histories on both, step by step."""

from tests.model.lockstep import Pair
from tests.model.sides import Side
from tests.model.walks import walk

from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.sqlite import SqliteStore


def test_sqlite_does_what_the_model_does() -> None:
    async def pair() -> Pair:
        model = await Side.of("memory", MemoryStore())
        return Pair(model, await Side.of("sqlite", SqliteStore()))

    walk("memory and sqlite", pair)
