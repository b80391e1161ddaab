"""One backend that several threads use, each with an event loop of its own."""

from tests.threads import THREADS, in_threads
from tests.unit.tasks.conftest import SQLiteStore
from tests.unit.tasks.test_file import open_files

from queue_operator.tasks import NotConnected, SQLiteBackend
from queue_operator.testing.tasks.store import NOON, connected, enqueue


async def test_threads_never_share_a_task(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, *(f"t-{n}" for n in range(120)))

        async def reserve_all(_: int) -> list[str]:
            mine: list[str] = []
            while tasks := await backend.reserve(2, NOON):
                for task in tasks:
                    await backend.mark_success(task.task_id, task.task_id)
                    mine.append(task.task_id)
            return mine

        reserved = [name for mine in await in_threads(reserve_all) for name in mine]
        assert sorted(reserved) == sorted(f"t-{n}" for n in range(120))
        results = [await backend.get_result(name) for name in reserved]
    assert [result.value for result in results if result] == reserved


async def test_connected_by_many_threads_there_is_one_connection(task_store: SQLiteStore) -> None:
    for turn in range(20):
        backend = task_store.open()

        async def connect(number: int, backend: SQLiteBackend = backend, turn: int = turn) -> None:
            await backend.connect()
            await enqueue(backend, f"t-{turn}-{number}")

        await in_threads(connect)
        assert open_files(task_store.path) == 1
        assert len(await backend.reserve(100, NOON)) == THREADS
        await backend.close()


async def test_closed_by_one_thread_the_others_are_told(task_store: SQLiteStore) -> None:
    """What was reserved by then is in nobody's hands twice, and in the file."""
    async with connected(task_store) as filler:
        await enqueue(filler, *(f"t-{n}" for n in range(300)))
    backend = task_store.open()
    await backend.connect()

    async def reserve_until_closed(number: int) -> list[str]:
        mine: list[str] = []
        for n in range(100_000):
            try:
                mine += [task.task_id for task in await backend.reserve(1, NOON)]
            except NotConnected:
                return mine
            if number == 0 and n == 10:
                await backend.close()
        raise AssertionError("never told")

    reserved = [name for mine in await in_threads(reserve_until_closed) for name in mine]
    assert len(reserved) == len(set(reserved)) >= 11
    running = task_store.ask("SELECT task_id FROM tasks WHERE status = 'in_progress'")
    assert sorted(reserved) == sorted(str(name) for (name,) in running)
