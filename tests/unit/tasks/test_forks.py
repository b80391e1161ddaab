"""A task store that its process had opened before it was forked."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.forks import forked_with_a_loop

from queue_operator.backends.forks import WrongProcess
from queue_operator.tasks import SQLiteBackend

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


async def test_a_fork_is_refused_by_name_and_may_connect_anew(tmp_path: Path) -> None:
    (told := tmp_path / "told").mkdir()
    backend = SQLiteBackend(tmp_path / "tasks.db", busy_timeout_s=30.0)
    await backend.connect()
    await backend.enqueue("before", 1, NOON)

    async def use(number: int) -> None:
        for call in (backend.enqueue("x", 1, NOON), backend.reserve(1, NOON), backend.connect()):
            with pytest.raises(WrongProcess, match=r"tasks\.db was made in another process"):
                await call
        await backend.close()
        await backend.connect()
        await backend.enqueue(f"child-{number}", 1, NOON)
        await backend.close()

    with forked_with_a_loop(use, told):
        await backend.enqueue("beside", 1, NOON)
    taken = {task.task_id for task in await backend.reserve(10, NOON)}
    assert taken == {"before", "beside", *(f"child-{n}" for n in range(4))}
    await backend.close()
