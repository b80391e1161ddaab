"""The worker that an application developer makes: handlers in, a process out."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from queue_operator.worker.errors import InvalidHandler
from queue_operator.worker.handlers import (
    RegistrationResult,
    RegistrationStatus,
    Registry,
    build_spec,
)
from queue_operator.worker.process import WorkerProcess
from queue_operator.worker.settings import WorkerSettings

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """Without settings they are read from the environment when it runs."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        self.settings = settings
        self.registry = Registry()
        self._process: WorkerProcess | None = None
        self._stops_before_start = 0

    def handler(
        self,
        type: str,
        *,
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
        concurrency: int | None = None,
    ) -> Callable[[Function], Function]:
        """Registers the decorated function for a job type.

        It takes `(ctx)` or `(ctx, payload)`. A payload annotated with a pydantic model is
        validated, `bytes` gets what was submitted, without an annotation it is the JSON
        value. `timeout` (seconds) and `max_attempts` apply to jobs that set none of their
        own; `concurrency` bounds how many jobs of the type this process runs at once.
        Raises InvalidHandler when the registration makes no sense.
        """

        def register(function: Function) -> Function:
            self._add(type, function, timeout, max_attempts, concurrency)
            return function

        return register

    def register(
        self,
        type: str,
        function: Callable[..., Any],
        *,
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
        concurrency: int | None = None,
    ) -> RegistrationResult:
        """As `handler`, but answers INVALID with the reason instead of raising."""
        try:
            previous = self._add(type, function, timeout, max_attempts, concurrency)
        except InvalidHandler as error:
            known = isinstance(type, str) and self.registry.get(type) is not None
            return RegistrationResult(type, RegistrationStatus.INVALID, known, str(error))
        status = RegistrationStatus.REPLACED if previous else RegistrationStatus.REGISTERED
        return RegistrationResult(type, status, previous)

    def _add(
        self,
        type_: str,
        function: Callable[..., Any],
        timeout: float | timedelta | None,
        max_attempts: int | None,
        concurrency: int | None,
    ) -> bool:
        spec = build_spec(
            type_, function, timeout=timeout, max_attempts=max_attempts, concurrency=concurrency
        )
        return self.registry.add(spec)

    def run(self) -> int:
        """Serves jobs until SIGTERM, SIGINT or `stop`, and drains first. Returns how many
        handlers had not ended by then; a thread among them keeps the interpreter from
        exiting, which is why `queue-worker` leaves with `os._exit`.

        Raises InvalidSettings, SessionRefused or SessionEnded.
        """
        settings = self.settings or WorkerSettings.from_environment()
        process = self._process = WorkerProcess(settings, self.registry)
        for _ in range(self._stops_before_start):
            process.stop()
        process.run()
        return process.abandoned

    def stop(self) -> None:
        """Drains, as SIGTERM does; called again, hands back at once. From any thread."""
        if self._process is None:
            self._stops_before_start += 1
        else:
            self._process.stop()
