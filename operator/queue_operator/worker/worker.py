"""The worker that an application developer makes: handlers in, a process out."""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from queue_operator.worker import middleware
from queue_operator.worker.callables import place_of
from queue_operator.worker.child import leave_if_unguarded
from queue_operator.worker.durations import Duration
from queue_operator.worker.errors import InvalidHandler
from queue_operator.worker.handlers import (
    RegistrationResult,
    RegistrationStatus,
    Registry,
    RunsIn,
    build_spec,
)
from queue_operator.worker.injection import Factory, Resource, as_resource, check_lifespan
from queue_operator.worker.middleware import Middleware
from queue_operator.worker.process import WorkerProcess
from queue_operator.worker.settings import WorkerSettings

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])
AnyMiddleware = TypeVar("AnyMiddleware", bound=Middleware)

Lifespan = Callable[["Worker"], Any]
"""A generator or async generator function that yields once, or one that gives a context
manager: what comes before the `yield` runs before the first job, the rest after the last.
"""


class Worker:
    """Handlers of job types, and what they share.

    Without `settings` they are read from the environment when the worker runs. `lifespan` is
    entered before the worker connects and left after its last job; what it yields is every
    job's `ctx.state`. If it fails, the worker ends before it takes a job. Raises InvalidHandler
    for one that cannot be called with the worker, or is a coroutine function, which never yields.

        @asynccontextmanager
        async def lifespan(worker: Worker) -> AsyncIterator[State]:
            async with connect() as database:
                yield State(database)

        worker = Worker(lifespan=lifespan)

    `overrides` replaces factories of dependencies by others, for tests:
    `worker.overrides[connect] = lambda: FakeDatabase()`.
    """

    def __init__(
        self, settings: WorkerSettings | None = None, *, lifespan: Lifespan | None = None
    ) -> None:
        self.settings = settings
        self.registry = Registry()
        self.overrides: dict[Factory, Factory] = {}
        if lifespan is not None:
            check_lifespan(lifespan)
        self._lifespan = lifespan
        self._registrations: dict[str, RegistrationResult] = {}
        self._process: WorkerProcess | None = None
        self._stops_before_start = 0

    @property
    def registrations(self) -> Mapping[str, RegistrationResult]:
        """The result of the last registration of each type, valid or not."""
        return MappingProxyType(self._registrations)

    def handler(
        self,
        type: str,
        *,
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        concurrency: int | None = None,
        runs_in: RunsIn | None = None,
    ) -> Callable[[Function], Function]:
        """Registers the decorated function for a job type; the function stays what it was, and
        `registrations[type]` has the result. A second one for the type replaces the first, which
        is logged as a warning that names both.

        It takes `(ctx)` or `(ctx, payload)`, and then any number of dependencies
        (`db: Annotated[Database, Depends(connect)]`). A payload annotated with a type that
        pydantic knows (a model, a dataclass, `list[int]`, …) is validated, `bytes` gets what
        was submitted, without an annotation it is the JSON value. A return annotation is held
        to in the same way.

        `timeout` (seconds, a `timedelta`, or text such as "5m" or "PT5M") and `max_attempts`
        (1 or more) apply to jobs that set none of their own; by default the queue's apply.
        `concurrency` bounds how many jobs of the type this process runs at once; by default the
        worker's capacity does. `runs_in` is "loop" for coroutine functions; plain functions run
        in a "thread", or in a "process" if they compute: then forced cancels and timeouts end
        them, and `concurrency` is by default the number of cores.

        Raises InvalidHandler when the registration makes no sense.
        """
        if callable(type):
            raise InvalidHandler(
                "type",
                f"is missing: write @worker.handler({_suggested(type)!r}), with the type of the "
                "jobs in parentheses",
            )

        def register(function: Function) -> Function:
            self._register(
                type,
                function,
                timeout=timeout,
                max_attempts=max_attempts,
                concurrency=concurrency,
                runs_in=runs_in,
            )
            return function

        return register

    def register(
        self,
        type: str,
        function: Callable[..., Any],
        *,
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        concurrency: int | None = None,
        runs_in: RunsIn | None = None,
    ) -> RegistrationResult:
        """As `handler`, but answers INVALID with the reason instead of raising.

        A worker that is connected announces the type to the server at once.
        """
        try:
            return self._register(
                type,
                function,
                timeout=timeout,
                max_attempts=max_attempts,
                concurrency=concurrency,
                runs_in=runs_in,
            )
        except InvalidHandler as error:
            return self._invalid(type, error)

    def _register(
        self, type_: str, function: Callable[..., Any], **options: Any
    ) -> RegistrationResult:
        try:
            spec = build_spec(type_, function, **options)
            replaced = self.registry.get(spec.type)
            previous = self.registry.add(spec)
        except InvalidHandler as error:
            self._invalid(type_, error)
            raise
        if replaced is not None and replaced.function is not function:
            logger.warning(
                "the handler of type %r is now %s, no longer %s: a type has one handler",
                spec.type,
                place_of(function),
                place_of(replaced.function),
            )
        status = RegistrationStatus.REPLACED if previous else RegistrationStatus.REGISTERED
        return self._remember(RegistrationResult(type_, status, previous))

    def _invalid(self, type_: object, error: InvalidHandler) -> RegistrationResult:
        named = type_ if isinstance(type_, str) else repr(type_)
        known = self.registry.get(named) is not None
        return self._remember(
            RegistrationResult(named, RegistrationStatus.INVALID, known, str(error))
        )

    def _remember(self, result: RegistrationResult) -> RegistrationResult:
        self._registrations[result.type] = result
        return result

    def middleware(self, function: AnyMiddleware) -> AnyMiddleware:
        """Registers an `async def m(ctx, call_next)` around every handler of this worker; what
        was registered first is outermost.

            @worker.middleware
            async def timed(ctx: JobContext, call_next: CallNext) -> Any:
                began = time.monotonic()
                try:
                    return await call_next(ctx)
                finally:
                    ctx.log("info", "ran", seconds=time.monotonic() - began)

        It sees the payload being read, the dependencies made, the handler, and its result
        written, and may change the context, the result or the error. What it raises counts as
        if the handler had raised it. It runs on the event loop whatever the handler runs in;
        of a handler in a process it gets the result as JSON would give it back.

        Raises InvalidHandler for a function that cannot be called so.
        """
        middleware.check(function)
        self.registry.middleware.append(function)
        return function

    def resource(self) -> Resource | None:
        """The lifespan, to be entered; None without one."""
        return None if self._lifespan is None else as_resource(self._lifespan(self))

    def run(self) -> int:
        """Serves jobs until SIGTERM, SIGINT or `stop`, and drains first. Returns how many
        handlers had not ended by then; a thread among them keeps the interpreter from
        exiting, which is why `queue-worker` leaves with `os._exit`.

        Raises InvalidSettings, SessionRefused or SessionEnded, and what the lifespan or a
        dependency of scope "worker" raises before the first job.
        """
        leave_if_unguarded()
        settings = self.settings or WorkerSettings.from_environment()
        process = self._process = WorkerProcess(
            settings, self.registry, lifespan=self.resource(), overrides=self.overrides
        )
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


def _suggested(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "my-type")).replace("_", "-")
