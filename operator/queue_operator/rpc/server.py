"""The gRPC server: the worker plane and the Queue."""

import logging
from typing import Final

import grpc

from queue_operator.auth.open import AdministratorsOnly
from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.hosts import authority
from queue_operator.metrics.doors import GrpcFigures
from queue_operator.queue.hub import EventHub, hub_of
from queue_operator.queue.protocol import HostedQueue
from queue_operator.rpc.door import Door
from queue_operator.rpc.gate import Gate
from queue_operator.rpc.measuring import Measuring
from queue_operator.rpc.queue_service import QueueServicer
from queue_operator.rpc.servicer import WorkerPlaneServicer
from queue_operator.rpc.tls import credentials
from queue_operator.settings import GrpcSettings, Settings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing
from queue_operator.wire.certificate_files import ServerFiles
from queue_operator.wire.listening import refusal, usable, why_not

logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 5.0
STREAMS_PER_CONNECTION: Final = 2048
IDLE_S: Final = 120
"""A connection without a call is closed after so long; clients open another by themselves."""
HANDSHAKE_S: Final = 10
_TRANSPORT_LIMIT: Final = 4
"""Messages of so many times the limit are still read, to be refused by name."""


class WorkerPlaneServer:
    """Start it after the queue, stop it before: sessions are told to reconnect elsewhere.

    It serves worker sessions and the Queue. Unless told otherwise by the `authorizer`, the
    Queue is for administrators only. `figures` counts the calls. Those who
    follow jobs share the hub of `events`.
    """

    def __init__(
        self,
        queue: HostedQueue,
        authenticator: Authenticator,
        settings: Settings,
        authorizer: Authorizer | None = None,
        tracing: Tracing = OFF,
        *,
        figures: GrpcFigures | None = None,
        events: EventHub | None = None,
    ) -> None:
        door = Door(
            authenticator, authorizer or AdministratorsOnly(), settings.limits.id_characters
        )
        rest = settings.rest
        hub = events or hub_of(queue, rest.streams, rest.streams_per_caller)
        self._own_hub = None if events else hub
        gate = Gate(authenticator)
        self._interceptors = (gate,) if figures is None else (Measuring(figures), gate)
        self._sessions = WorkerPlaneServicer(queue, door, settings)
        self._calls = QueueServicer(queue, door, settings, tracing, hub)
        self._settings = settings.grpc
        self._server: grpc.aio.Server | None = None

    async def start(self, port: int | None = None) -> int:
        """Listens and gives the bound port; `port` None is the settings', 0 any free one.

        Raises Unavailable when the address is taken, InvalidArgument for unusable certificates.
        """
        self._server = grpc.aio.server(
            interceptors=self._interceptors, options=_options(self._settings)
        )
        self._server.add_generic_rpc_handlers((self._sessions.handler(), self._calls.handler()))
        host, port = self._settings.host, self._settings.port if port is None else port
        address = authority(usable(host), port)
        files = ServerFiles.of(self._settings)
        try:
            if files is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials(files))
        except RuntimeError as error:
            # gRPC does not say what is wrong.
            told = refusal("gRPC", host, port, why_not(host, port), "GRPC")
            raise Unavailable(told) from error
        await self._server.start()
        logger.info("gRPC listens on %s", authority(host, bound))
        return bound

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Says goodbye to every worker; calls still open after `grace_s` are cut."""
        if self._server is not None:
            self._sessions.say_goodbye()
            if self._own_hub is not None:
                await self._own_hub.close()
            await self._calls.leave()
            await self._server.stop(grace_s)
            await self._calls.finish(grace_s)
            self._server = None


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    """Keepalive proves an idle worker alive, so it need not send heartbeats; a dead connection
    ends within one and a third of its interval, one lease TTL unless told otherwise. Workers ask
    a little sooner, and whoever has asked just now is not asked: one exchange serves both ends.
    """
    timeout_ms = round(settings.keepalive_s * 1000 / 3)
    return [
        ("grpc.max_receive_message_length", settings.message_bytes * _TRANSPORT_LIMIT),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", round(settings.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # Without this a ping that nobody answers is waited for for a minute all the same.
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", settings.connections),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_connection_idle_ms", IDLE_S * 1000),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
    ]
