"""One call over the line: credentials, deadline, repeats, and statuses as exceptions."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from queue_operator.client.credentials import Token
from queue_operator.client.grpc.line import Line
from queue_operator.client.grpc.retrying import Repeats
from queue_operator.domain.errors import QueueError, Unauthenticated, Unavailable
from queue_operator.wire.status import error_from_status

Metadata = tuple[tuple[str, str | bytes], ...]
Sleep = Callable[[float], Awaitable[None]]
Answer = TypeVar("Answer", bound=Message)
DoneBefore = Callable[[QueueError], Awaitable[Answer | None]]

_HEADER: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""What a header of HTTP can hold."""
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
    ) -> Answer:
        """Raises the error of the server, or Unavailable when there is no answer in time.

        `done_before` is asked about the error of a repeat: the answer, if the error is only
        there because an earlier try had done it all.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        failures = 0
        while True:
            try:
                got = await self._once(method, request, namespace, deadline - loop.time())
                assert isinstance(got, answer)  # noqa: S101  (the stub says so)
                return got
            except Unavailable:
                failures += 1
                pause_s = self._repeats.pause_s(failures)
                late = loop.time() + pause_s >= deadline
                if not repeatable or failures >= self._repeats.attempts or late:
                    raise
            except QueueError as error:
                if failures and done_before and (known := await done_before(error)):
                    return known
                raise
            await self._sleep(pause_s)

    async def _once(
        self, method: str, request: Message, namespace: str | None, timeout_s: float
    ) -> object:
        if self.line.closed:
            raise Unavailable(CLOSED)
        async with self.line.call() as stub:
            call = getattr(stub, method)
            try:
                return await call(request, timeout=timeout_s, metadata=self.metadata(namespace))
            except grpc.aio.AioRpcError as error:
                raise self.error_of(error) from error
            except asyncio.CancelledError:
                if self.line.closed and not _is_cancelled():
                    raise Unavailable(CLOSED) from None
                raise

    def metadata(self, namespace: str | None) -> Metadata:
        """Credentials and namespace of a call."""
        token = self._token() if callable(self._token) else self._token
        found: list[tuple[str, str | bytes]] = []
        if token:
            if not _HEADER.fullmatch(token):
                raise Unauthenticated("the token holds characters that no header can")
            found.append(("authorization", f"Bearer {token}"))
        if namespace is not None:
            plain = _HEADER.fullmatch(namespace) is not None
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


def _pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    return tuple(metadata or ())


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
