import asyncio

import pytest

from queue_operator.worker.health import serve_health


async def get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode().splitlines()[0]


async def test_the_probes_follow_the_worker() -> None:
    state = {"alive": True, "ready": False}
    async with serve_health(
        0, alive=lambda: state["alive"], ready=lambda: state["ready"], host="127.0.0.1"
    ) as port:
        assert await get(port, "/healthz") == "HTTP/1.1 200 OK"
        assert await get(port, "/readyz") == "HTTP/1.1 503 Service Unavailable"
        state.update(alive=False, ready=True)
        assert await get(port, "/healthz") == "HTTP/1.1 503 Service Unavailable"
        assert await get(port, "/readyz?verbose") == "HTTP/1.1 200 OK"
        assert await get(port, "/other") == "HTTP/1.1 404 Not Found"


async def test_a_taken_port_is_an_error() -> None:
    async with serve_health(0, alive=lambda: True, ready=lambda: True, host="127.0.0.1") as port:
        with pytest.raises(OSError, match="address"):
            async with serve_health(port, alive=lambda: True, ready=lambda: True, host="127.0.0.1"):
                pass
