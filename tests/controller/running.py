"""A controller beside the test, in a thread and loop of its own as kopf wants it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from queue_operator.backends.protocol import Signals
from queue_operator.controller.ports import BackendFactory, ControllerStats
from queue_operator.controller.startup import serve_controller
from queue_operator.settings import ControllerSettings, QuotaSettings, Settings

PATIENCE_S = 30.0


class RunningController:
    """Use as a context manager; a failure of the controller is raised at the end."""

    def __init__(
        self,
        backend_factory: BackendFactory,
        kubeconfig: Path,
        namespaces: tuple[str, ...],
        *,
        resync_s: float = 60.0,
        status_writes_per_s: float = 300.0,
        quotas: QuotaSettings | None = None,
    ) -> None:
        self.stats = ControllerStats()
        self._factory = backend_factory
        self._kubeconfig = kubeconfig
        self._settings = Settings(
            quotas=quotas or QuotaSettings(),
            controller=ControllerSettings(
                namespaces=namespaces,
                resync_s=resync_s,
                status_writes_per_s=status_writes_per_s,
            ),
        )
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._stop: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="controller")

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            # It would wait for its cluster for ever.
            self.__exit__(None, None, None)
            raise AssertionError("the controller did not start")
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stop is not None and self._thread.is_alive():
            self._stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the controller did not end"
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # handed to the test
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(stop.set)

        self._stop = end
        announce = asyncio.create_task(self._announce(ready))
        await serve_controller(
            self._settings,
            self._factory,
            stop=stop,
            kubeconfig=str(self._kubeconfig),
            stats=self.stats,
            ready=ready,
        )
        announce.cancel()

    async def _announce(self, ready: asyncio.Event) -> None:
        await ready.wait()
        self._ready.set()


async def until(
    signals: Signals, holds: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S
) -> None:
    """Waits for `holds`, looking again whenever the store announces something."""
    async with asyncio.timeout(timeout_s), _listening(signals) as announcements:
        if await holds():
            return
        async for _ in announcements:
            if await holds():
                return


@asynccontextmanager
async def _listening(signals: Signals) -> AsyncIterator[AsyncIterator[object]]:
    announcements = signals.listen()
    try:
        yield announcements
    finally:
        close = getattr(announcements, "aclose", None)
        if close is not None:
            await close()
