"""One call over the line: credentials, deadline, repeats, and statuses as exceptions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from google.protobuf.message import Message

from queue_operator.client.credentials import HEADER, Token, bearer
from queue_operator.client.grpc.line import Line
from queue_operator.client.grpc.retrying import Repeats
from queue_operator.domain.errors import (
    QueueError,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.wire import listener
from queue_operator.wire.status import NO_GRPC, error_from_status

if TYPE_CHECKING:
    from queue_operator.wire.v1.queue_pb2_grpc import QueueAsyncStub

Metadata = tuple[tuple[str, str | bytes], ...]
Sleep = Callable[[float], Awaitable[None]]
Answer = TypeVar("Answer", bound=Message)
DoneBefore = Callable[[QueueError], Awaitable[Answer | None]]
Mend = Callable[[Answer], Awaitable[None]]

CLOSED: Final = "this client is closed"


class Calls:
    """Makes calls, each for a namespace and within `timeout_s`."""

    def __init__(
        self, line: Line, token: Token, timeout_s: float, repeats: Repeats, sleep: Sleep
    ) -> None:
        self.line = line
        self.timeout_s = timeout_s
        self._token = token
        self._repeats = repeats
        self._sleep = sleep

    def within(self, timeout_s: float) -> "Calls":
        """The same with another deadline."""
        return Calls(self.line, self._token, timeout_s, self._repeats, self._sleep)

    async def ask(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        *,
        namespace: str | None = None,
        repeatable: bool = False,
        done_before: DoneBefore[Answer] | None = None,
        mend: Mend[Answer] | None = None,
        stub: "QueueAsyncStub | None" = None,
    ) -> Answer:
        """Raises the error of the server, or Unavailable when there is no answer in time.

        `done_before` is asked about the error of a repeat after a try that may have been
        carried out: the answer, if the error is only there because that had done it all. `mend`
        gets the answer to such a repeat, to take out the errors of single entries that are only
        there for this reason.
        With a `stub` the call goes over that one's channel, whatever the current one is.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        failures = 0
        in_doubt = False
        while True:
            try:
                got = await self._once(method, request, namespace, deadline - loop.time(), stub)
                assert isinstance(got, answer)  # noqa: S101  (the stub says so)
                if in_doubt and mend:
                    await mend(got)
                return got
            except QuotaExceeded as error:
                # It has not begun, so that anything may be sent again; not by all at once.
                failures += 1
                pause_s = (error.retry_after_s or 0.0) + self._repeats.pause_s(failures)
                late = loop.time() + pause_s >= deadline
                if self._was_last(failures, late) or error.is_hopeless_for(_jobs(request)):
                    raise
            except Unavailable as error:
                failures += 1
                in_doubt = True
                pause_s = self._repeats.pause_s(failures)
                late = loop.time() + pause_s >= deadline
                hopeless = not repeatable or NO_GRPC in error.message
                if hopeless or self._was_last(failures, late):
                    raise await self.explained(error) from None
            except QueueError as error:
                if in_doubt and done_before and (known := await done_before(error)):
                    return known
                raise
            await self._sleep(pause_s)

    async def pause(self, failures: int, spread_s: float = 0.0, least_s: float = 0.0) -> None:
        """Before the next try of a stream: as after so many failures of a call, at random up to
        `spread_s` if that is longer, and at least `least_s`.
        """
        repeats = self._repeats
        pause_s = repeats.pause_s(failures) if failures else 0.0
        await self._sleep(max(pause_s, repeats.rng() * spread_s, least_s))

    def _was_last(self, failures: int, late: bool) -> bool:
        return late or failures >= self._repeats.attempts or self.line.closed

    async def _once(
        self,
        method: str,
        request: Message,
        namespace: str | None,
        timeout_s: float,
        stub: "QueueAsyncStub | None",
    ) -> object:
        if self.line.closed:
            raise Unavailable(CLOSED)
        async with self.line.call() if stub is None else nullcontext(stub) as used:
            call = getattr(used, method)
            try:
                return await call(request, timeout=timeout_s, metadata=self.metadata(namespace))
            except grpc.aio.AioRpcError as error:
                found = self.error_of(error)
                # What has a kind of its own says all that gRPC's error does.
                raise found from (error if type(found) is QueueError else None)
            except asyncio.CancelledError:
                if self.line.closed and not _is_cancelled():
                    raise Unavailable(CLOSED) from None
                raise

    def metadata(self, namespace: str | None) -> Metadata:
        """Credentials and namespace of a call."""
        found: list[tuple[str, str | bytes]] = []
        if token := bearer(self._token):
            found.append(("authorization", f"Bearer {token}"))
        if namespace is not None:
            plain = HEADER.fullmatch(namespace) is not None
            found.append(
                ("namespace", namespace) if plain else ("namespace-bin", namespace.encode())
            )
        return tuple(found)

    def error_of(self, error: grpc.aio.AioRpcError) -> QueueError:
        """What a call that failed has to say."""
        text = error.details() or ""
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"there was no answer within {self.timeout_s:g} s")
        return error_from_status(error.code(), text, _pairs(error.trailing_metadata()))

    async def explained(self, error: QueueError) -> QueueError:
        """The same, with what answers at the address instead, if something does."""
        told = await listener.named(self.line.address, error.message)
        return error if told == error.message else Unavailable(told)


def _jobs(request: Message) -> int:
    return len(getattr(request, "jobs", ()))


def _pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    return tuple(metadata or ())


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
