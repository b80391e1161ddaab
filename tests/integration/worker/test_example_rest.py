"""examples/03-rest-api: the walk through all operations, with a real worker process."""

import asyncio
import re
import shutil
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.integration.worker.conftest import Operator, StartWorker

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.settings import AuthMode, AuthSettings, RestSettings, Settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "03-rest-api"


@dataclass(frozen=True)
class Rest:
    """`operations` are method and path of each."""

    url: str
    operations: frozenset[tuple[str, str]]


@pytest.fixture
async def rest(operator: Operator) -> AsyncIterator[Rest]:
    settings = Settings(
        auth=AuthSettings(mode=AuthMode.NONE), rest=RestSettings(host="127.0.0.1", port=0)
    )
    app = create_app(operator.queue, *build(settings.auth), settings)
    door = RestServer(app, settings.rest)
    await door.start()
    url = f"http://127.0.0.1:{door.port}"
    async with httpx.AsyncClient(base_url=url) as http:
        paths = (await http.get("/v1/openapi.json")).json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    yield Rest(url, frozenset(found))
    await door.stop()


async def walk(server: str, namespace: str) -> tuple[int | None, str]:
    """How the walk ends, and what it prints."""
    shell = shutil.which("sh")
    assert shell is not None
    ran = await asyncio.create_subprocess_exec(
        shell,
        "walk.sh",
        cwd=EXAMPLE,
        env={
            "PATH": "/usr/bin:/bin",
            "SERVER": server,
            "NAMESPACE": namespace,
            "RUN": f"walk-{uuid.uuid4().hex[:8]}",
            "TOKEN": "any",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await ran.communicate()
    return ran.returncode, said.decode()


async def test_the_walk_goes_through_all_operations(
    operator: Operator, start_worker: StartWorker, rest: Rest
) -> None:
    start_worker(folder=EXAMPLE)
    ended, said = await walk(rest.url, operator.namespace)
    assert ended == 0, said
    assert said.endswith("openapi.json 200\ndocs 200\n# That was all.\n")
    assert len(rest.operations) >= 18
    for method, path in rest.operations:
        asked = re.sub(r"\\\{\w+\\\}", "[^/?']+", re.escape(path))
        assert re.search(rf"curl -X {method} '[^']*:\d+{asked}['?]", said), (method, path)


async def test_the_walk_ends_where_something_is_wrong(operator: Operator) -> None:
    ended, said = await walk("http://127.0.0.1:1", operator.namespace)
    assert ended != 0
    assert "That was all" not in said
