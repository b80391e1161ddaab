"""The session's I/O: one stream to the server, made again for as long as the process lives."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from grpc import aio

from queue_operator.domain.retry import Backoff, delay_s
from queue_operator.wire.clear import host_of_target, warn_of_token
from queue_operator.wire.tls import ClientTls
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.wire.v1.worker_pb2_grpc import WorkerPlaneStub
from queue_operator.worker.errors import SessionEnded, SessionRefused
from queue_operator.worker.failures import Repetition, code_of, failure_of
from queue_operator.worker.heartbeat import beat
from queue_operator.worker.outcomes import MAX_BATCH
from queue_operator.worker.session import Session
from queue_operator.worker.settings import WorkerSettings

logger = logging.getLogger(__name__)


class Call(Protocol):
    """One stream to the server, as gRPC's. `read` gives no ServerMessage at its end."""

    async def read(self) -> object: ...

    async def write(self, message: wire.WorkerMessage) -> None: ...

    async def done_writing(self) -> None: ...


Connect = Callable[[], AbstractAsyncContextManager[Call]]

COALESCE_S: Final = 0.002
_SPACINGS: Final = 5
"""Messages of a worker that has most of its slots free are so many times as far apart, but the
first after a rest: each costs both sides more than the outcome in it.
"""
CLOSE_S: Final = 1.0
CHANNEL_OPTIONS: Final = (
    # A worker takes what its server sends, which knows the limits; and a message that gRPC
    # would not send must not end each session that it is sent through.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A dead path is found within one lease TTL, in time to go on through another. The server asks
    # after longer silence only, so that one of the two does.
    ("grpc.keepalive_time_ms", 3_400),
    ("grpc.keepalive_timeout_ms", 1_600),
    # Without this a ping that nobody answers is waited for for a minute all the same.
    ("grpc.http2.ping_timeout_ms", 1_600),
    ("grpc.http2.max_pings_without_data", 0),
    # Each connect gets a channel of its own: no backoff of an earlier one may delay it.
    ("grpc.use_local_subchannel_pool", 1),
)
_TYPES_TOLD: Final = 20


class Client:
    """Connects, pumps messages between the stream and the session, and reconnects.

    `connect` opens another stream than that of gRPC to the settings' server; `coalesce_s` is
    how long messages wait for others that could travel with them.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        *,
        rng: Callable[[], float] = random.random,
        connect: Connect | None = None,
        coalesce_s: float = COALESCE_S,
    ) -> None:
        self._settings = settings
        self._session = session
        self._rng = rng
        self._open_call = connect or self._open_grpc_call
        self._coalesce_s = coalesce_s
        self._to_send = asyncio.Event()
        self._full = asyncio.Event()
        self._done = asyncio.Event()
        self._wrote_s = float("-inf")
        self._failures = 0
        self._refused_since: float | None = None
        self._repetition = Repetition()
        self._ever_connected = False
        if connect is None and settings.token_file is not None and settings.ca_file is None:
            host = host_of_target(settings.server)
            warn_of_token(logger, settings.server, host, "set QUEUE_OPERATOR_CA_FILE")
        self._stops = 0
        self.connected = False

    def wake(self) -> None:
        """There is something to send."""
        self._to_send.set()
        if self._session.outcomes.unsent >= MAX_BATCH:
            self._full.set()
        elif not self._session.running and not (self._is_roomy and self._spare_s() > 0):
            # Nothing more can come before the server has heard of this.
            self._full.set()

    @property
    def _is_roomy(self) -> bool:
        taken = self._session.running + len(self._session.outcomes)
        return taken <= self._settings.capacity // 2 and not self._session.draining

    def _spare_s(self) -> float:
        """How long until messages are far enough apart."""
        due_s = self._wrote_s + _SPACINGS * self._coalesce_s
        return due_s - asyncio.get_running_loop().time()

    def done(self) -> None:
        """A draining session holds nothing more."""
        self._done.set()
        self._to_send.set()

    def stop(self) -> None:
        """Drains: first the grace, then handing back, then a bounded wait for the answers.
        Called a second time it hands back at once.
        """
        self._stops += 1
        loop = asyncio.get_running_loop()
        if self._stops == 1:
            logger.info("draining: %g s for running jobs to finish", self._settings.grace_s)
            self._session.drain()
            loop.call_later(self._settings.grace_s, self._hand_back)
        elif self._stops == 2:
            self._hand_back()

    def _hand_back(self) -> None:
        if self._done.is_set():
            return
        logger.info("handing back the jobs that have not finished")
        self._session.hand_back()
        asyncio.get_running_loop().call_later(self._settings.ack_wait_s, self._give_up)

    def _give_up(self) -> None:
        if not self._done.is_set():
            logger.warning("the server did not confirm in time; its leases will expire")
            self._session.abandon()

    async def run(self) -> None:
        """Returns when the session is drained.

        Raises SessionRefused or SessionEnded when the server will not have this process.
        """
        loop = asyncio.get_running_loop()
        while not self._done.is_set():
            began = loop.time()
            try:
                await self._connect()
            except (aio.AioRpcError, OSError, asyncio.InvalidStateError) as error:
                await self._judge(error)
            finally:
                self.connected = False
                self._session.disconnected()
            self._obey_goodbye()
            # A connection that lasted starts the waits anew; one that is cut as soon as it
            # is made does not.
            lasted = loop.time() - began >= self._settings.reconnect_max_s
            self._failures = 1 if lasted else self._failures + 1
            await self._pause()

    async def _connect(self) -> None:
        async with self._open_call() as call:
            await self.unless_done(self._greet(call))
            if self.connected:
                await self._pump(call)

    @contextlib.asynccontextmanager
    async def _open_grpc_call(self) -> AsyncIterator[Call]:
        async with self._channel() as channel:
            call = WorkerPlaneStub(channel).Session(metadata=self._metadata())
            try:
                yield call
            finally:
                call.cancel()

    def _channel(self) -> aio.Channel:
        settings = self._settings
        if settings.ca_file is None:
            return aio.insecure_channel(settings.server, options=CHANNEL_OPTIONS)
        tls = ClientTls(
            ca_file=settings.ca_file,
            certificate_file=settings.cert_file,
            key_file=settings.key_file,
        )
        return aio.secure_channel(settings.server, tls.credentials(), options=CHANNEL_OPTIONS)

    def _metadata(self) -> aio.Metadata:
        token = self._settings.token()
        return aio.Metadata(("authorization", f"Bearer {token}")) if token else aio.Metadata()

    async def unless_done(self, work: Awaitable[None]) -> None:
        """Waits for the work, or cuts it off when there is nothing more to do."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self._done_event())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            await _end(tasks)

    async def _done_event(self) -> None:
        await self._done.wait()

    async def _greet(self, call: Call) -> None:
        async with asyncio.timeout(self._settings.connect_timeout_s):
            # A call that was refused at once cannot be written to; the read tells why.
            with contextlib.suppress(asyncio.InvalidStateError):
                await call.write(wire.WorkerMessage(hello=self._session.hello()))
            first = await call.read()
        if not isinstance(first, wire.ServerMessage):
            raise ConnectionError("the server closed the stream instead of answering the hello")
        self._session.receive(first)
        if first.HasField("welcome"):
            self._welcomed(first.welcome)

    def _welcomed(self, welcome: wire.Welcome) -> None:
        hello = self._session.hello()
        types = [one.type for one in hello.types]
        more = ", …" if len(types) > _TYPES_TOLD else ""
        logger.info(
            "connected to %s as %s, namespace %s, tags %s, capacity %d, types %s",
            self._settings.server,
            welcome.worker_name,
            welcome.namespace,
            ", ".join(hello.tags) or "none",
            hello.capacity,
            ", ".join(types[:_TYPES_TOLD]) + more,
        )
        self._repetition.forget()
        self.connected = self._ever_connected = True
        self._refused_since = None

    async def _pump(self, call: Call) -> None:
        """Until the stream ends or the session is done, then closes it in good order."""
        tasks = [
            asyncio.create_task(self._read(call)),
            asyncio.create_task(self._write(call)),
            asyncio.create_task(beat(self._session)),
        ]
        reader, writer, _ = tasks
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._done.is_set() and writer.done() and not writer.exception():
                await call.done_writing()
                await asyncio.wait([reader], timeout=CLOSE_S)
            next(task for task in tasks if task.done()).result()
        finally:
            await _end(tasks)

    async def _read(self, call: Call) -> None:
        while self._session.goodbye is None:
            message = await call.read()
            if not isinstance(message, wire.ServerMessage):
                return
            self._session.receive(message)

    async def _write(self, call: Call) -> None:
        # `done` also sets `_to_send`: what was said before the end is still sent.
        while self._to_send.is_set() or not self._done.is_set():
            await self._to_send.wait()
            if not self._done.is_set():
                await self._coalesce()
            self._to_send.clear()
            self._full.clear()
            for message in self._session.take_messages():
                await call.write(message)
            self._wrote_s = asyncio.get_running_loop().time()

    async def _coalesce(self) -> None:
        """Lets outcomes gather for a moment, or until no more can come or a batch is full."""
        wait_s = max(self._coalesce_s, self._spare_s() if self._is_roomy else 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._full.wait()

    async def _judge(self, error: Exception) -> None:
        """Logs why there is no connection. Raises SessionRefused when trying on is useless."""
        at_start = not self._ever_connected
        failure = await failure_of(error, self._settings, at_start=at_start)
        now = asyncio.get_running_loop().time()
        text = f"no session with {self._settings.server}: {failure.text}"
        if failure.refused:
            self._refused_since = now if self._refused_since is None else self._refused_since
            given_up = now - self._refused_since >= self._settings.refused_s
            if given_up or (failure.hopeless and at_start):
                raise SessionRefused(text)
        silent = self._repetition.tell((type(error), code_of(error)), now)
        if silent is not None:
            level = logging.ERROR if failure.refused else logging.WARNING
            since = f" ({silent} more times since the last line)" if silent else ""
            logger.log(level, "%s; trying again%s", text, since)

    def _obey_goodbye(self) -> None:
        goodbye, self._session.goodbye = self._session.goodbye, None
        if goodbye is None:
            return
        logger.info("the server said goodbye: %s", goodbye.reason)
        if not goodbye.reconnect and not self._done.is_set():
            self._session.abandon()
            raise SessionEnded(f"the server ended the session for good: {goodbye.reason}")

    async def _pause(self) -> None:
        """A random wait that grows with each failure in a row; `done` ends it early."""
        backoff = Backoff(
            initial_delay_s=self._settings.reconnect_initial_s,
            max_delay_s=self._settings.reconnect_max_s,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s(backoff, self._failures, self._rng)):
                await self._done.wait()


async def _end(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
