"""The gRPC server of the worker plane."""

import logging
from typing import Final

import grpc

from queue_operator.auth.protocol import Authenticator
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.protocol import Queue
from queue_operator.rpc.servicer import WorkerPlaneServicer
from queue_operator.settings import Settings

logger = logging.getLogger(__name__)

KEEPALIVE_S: Final = 3
KEEPALIVE_TIMEOUT_S: Final = 2
"""Together one lease TTL: a dead connection ends before it costs more than the jobs on it."""
STOP_GRACE_S: Final = 5.0
_FRAME_BYTES: Final = 1024 * 1024


class WorkerPlaneServer:
    """Start it after the queue, stop it before: sessions are told to reconnect elsewhere."""

    def __init__(self, queue: Queue, authenticator: Authenticator, settings: Settings) -> None:
        self._servicer = WorkerPlaneServicer(queue, authenticator, settings)
        self._settings = settings.grpc
        self._server: grpc.aio.Server | None = None

    async def start(self, port: int | None = None) -> int:
        """Listens and gives the bound port; `port` None is the settings', 0 any free one.

        Raises Unavailable when the address is taken.
        """
        self._server = grpc.aio.server(options=_options(self._settings.message_bytes))
        self._server.add_generic_rpc_handlers((self._servicer.handler(),))
        address = f"{self._settings.host}:{self._settings.port if port is None else port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}: {error}") from error
        await self._server.start()
        logger.info("worker plane listens on %s:%d", self._settings.host, bound)
        return bound

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Says goodbye to every worker; calls still open after `grace_s` are cut."""
        if self._server is not None:
            self._servicer.say_goodbye()
            await self._server.stop(grace_s)
            self._server = None


def _options(message_bytes: int) -> list[tuple[str, int]]:
    """Keepalive proves an idle worker alive, so it need not send heartbeats. Messages a
    little over the limit are still read, to be refused by name.
    """
    return [
        ("grpc.max_receive_message_length", message_bytes + _FRAME_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]
