"""Queues behind gRPC servers of this process, as a rig."""

from dataclasses import dataclass

from pydantic import SecretStr

from queue_operator.auth.static import StaticAuthenticator
from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.queue.protocol import Queue
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import GrpcSettings, QueueSettings, Settings
from queue_operator.testing.queue.local import LocalRig
from queue_operator.testing.queue.rig import BOUND_S

_TOKEN = "of the tests"
# Each try of a call waits for a store that is away.
_REPEATS = Repeats(attempts=2)


@dataclass
class _Door:
    client: GrpcQueue
    server: WorkerPlaneServer


class GrpcRig(LocalRig):
    """Each queue has a server of its own, and all that tests have is a client of it."""

    carries = True

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._doors: dict[int, _Door] = {}

    async def _offer(self, service: QueueService) -> Queue:
        settings = Settings(
            grpc=GrpcSettings(host="127.0.0.1", port=0),
            queue=QueueSettings(lease_ttl_s=service.lease_ttl_s),
        )
        server = WorkerPlaneServer(
            service, StaticAuthenticator({"tests": SecretStr(_TOKEN)}), settings
        )
        port = await server.start()
        client = GrpcQueue(f"127.0.0.1:{port}", _TOKEN, timeout_s=BOUND_S, repeats=_REPEATS)
        self._doors[id(service)] = _Door(client, server)
        return client

    async def _close(self, service: QueueService) -> None:
        """As a process does that stops; whoever is its client stays."""
        await self._doors[id(service)].server.stop(BOUND_S)
        await super()._close(service)

    async def end(self) -> None:
        extra = [self._doors[id(service)] for service in self._extra]
        await super().end()
        for door in extra:
            await door.client.close()

    async def close(self) -> None:
        await super().close()
        for door in self._doors.values():
            await door.client.close()
