"""`python -m bench.programs.empty_endpoint PORT`: the least that the framework of our REST server
can answer, with the same settings, in a process of its own.
"""

import asyncio
import signal
import sys

import uvloop
from fastapi import FastAPI

from queue_operator.api.server import RestServer
from queue_operator.collector import collect_seldom
from queue_operator.settings import RestSettings

PATH = "/v1/jobs"
READY = "/readyz"


def create_app() -> FastAPI:
    """One endpoint that reads nothing and stores nothing."""
    app = FastAPI(openapi_url=None, telemetry={"tracing": False, "metrics": False, "logs": False})

    @app.get(READY)
    @app.post(PATH, status_code=201)
    async def answer() -> dict[str, str]:
        return {"status": "ACCEPTED"}

    return app


async def main(port: int) -> None:
    server = RestServer(create_app(), RestSettings(host="127.0.0.1", port=port))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await server.start()
    await stop.wait()
    await server.stop()


if __name__ == "__main__":
    collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
