"""What strangers cost a server that runs, as the install guide has it."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.conftest import migrated_database
from tests.integration.serving import Server, free_port

STRANGERS = 8
MIB = 1024 * 1024
BODY = 32 * MIB
EACH = 2 * MIB
"""The figure of the guide."""
BESIDE = 16 * MIB
"""What the server itself may need more of meanwhile."""


@pytest.fixture
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "strangers") as address:
        yield address


def peak_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


async def turned_away(port: int, body: bytes) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call: Any = channel.unary_unary("/queueoperator.v1.Queue/EnqueueJobs")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(body, timeout=60)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_large_messages_of_strangers_take_next_to_no_memory(dsn: str, tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "DATABASE__DSN": dsn,
        "GRPC__PORT": str(port),
        "AUTH__MODE": "static",
        "AUTH__TOKENS": json.dumps({"me": "a token"}),
    }
    server = Server(settings, tmp_path / "serve.log")
    try:
        await asyncio.to_thread(server.await_ready)
        # What the first call needs for itself.
        await turned_away(port, b"")
        before = peak_bytes(server)
        body = bytes(BODY)
        await asyncio.gather(*(turned_away(port, body) for _ in range(STRANGERS)))
        assert peak_bytes(server) - before < STRANGERS * EACH + BESIDE
    finally:
        server.process.kill()
        server.process.wait()
