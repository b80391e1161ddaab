"""The backend is closed when the controller ends, though kopf has cancelled tasks of it before."""

import asyncio
from typing import cast

import pytest

from queue_operator.controller import startup
from queue_operator.controller.ports import ControllerBackend


class Pooled:
    """Waits, when it is closed, for a task of its own, as a pool does for its workers."""

    def __init__(self) -> None:
        self.worker = asyncio.create_task(asyncio.Event().wait())
        self.error: Exception | None = None

    async def close(self) -> None:
        if self.error:
            raise self.error
        await asyncio.shield(self.worker)


async def close(backend: Pooled) -> None:
    await startup._close(cast(ControllerBackend, backend))


async def test_a_worker_that_kopf_has_cancelled_does_not_cancel_the_controller() -> None:
    backend = Pooled()
    backend.worker.cancel()
    await close(backend)
    assert backend.worker.cancelled()


async def test_one_that_does_not_end_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "CLOSE_TIMEOUT_S", 0.05)
    backend = Pooled()
    await close(backend)
    assert not backend.worker.done()
    backend.worker.cancel()


async def test_any_other_failure_is_told() -> None:
    backend = Pooled()
    backend.error = RuntimeError("it cannot be closed")
    with pytest.raises(RuntimeError, match="it cannot be closed"):
        await close(backend)
    backend.worker.cancel()
