"""The API client against a server that answers what the test wants."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.client import Configuration

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.domain.errors import Unavailable

Answer = Callable[[web.Request], web.Response]
Connect = Callable[[Answer], Awaitable[KubeClient]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Starts a server with the given answers and gives a client of it."""
    opened: list[Any] = []

    async def start(answer: Answer) -> KubeClient:
        async def respond(request: web.Request) -> web.Response:
            return answer(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", respond)
        server = TestServer(app)
        await server.start_server()
        client = KubeClient(Credentials(configuration(str(server.make_url("")))))
        await client.__aenter__()
        opened.extend([client, server])
        return client

    yield start
    for item in opened:
        await (item.close() if isinstance(item, TestServer) else item.__aexit__())


def configuration(host: str) -> Any:
    found = Configuration()
    found.host = host
    return found


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"Retry-After": "7"}, {}, 7),
        ({}, {"details": {"retryAfterSeconds": 3}}, 3),
        ({}, {}, None),
    ],
)
async def test_how_long_to_wait_is_read_from_either_place(
    connect: Connect, headers: dict[str, str], body: Any, expected: float | None
) -> None:
    client = await connect(lambda _: web.json_response(body, status=429, headers=headers))
    with pytest.raises(ApiError) as refusal:
        await client.get("/x")
    assert refusal.value.retryable
    assert refusal.value.retry_after_s == expected


async def test_causes_are_kept(connect: Connect) -> None:
    status = {"message": "invalid", "details": {"causes": [{"message": "too low"}]}}
    client = await connect(lambda _: web.json_response(status, status=422))
    with pytest.raises(ApiError, match="invalid") as refusal:
        await client.replace_status("/x", "uid", {})
    assert refusal.value.causes == ("too low",)
    assert not refusal.value.retryable


async def test_an_answer_that_is_no_json_is_an_error_like_others(connect: Connect) -> None:
    client = await connect(lambda _: web.Response(status=502, text="bad gateway"))
    with pytest.raises(ApiError, match="bad gateway") as refusal:
        await client.get("/x")
    assert refusal.value.retryable


async def test_pages_follow_the_token(connect: Connect) -> None:
    asked: list[dict[str, str]] = []

    def answer(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        last = "continue" in request.query
        metadata = {} if last else {"continue": "next"}
        return web.json_response({"items": [{"n": len(asked)}], "metadata": metadata})

    client = await connect(answer)
    found = [page async for page in client.pages("/x", field_selector="a!=b")]
    assert found == [[{"n": 1}], [{"n": 2}]]
    assert asked[1] == {"limit": "500", "fieldSelector": "a!=b", "continue": "next"}


async def test_a_rotated_token_is_used_at_once() -> None:
    rotating = configuration("http://unused")
    tokens = iter(("one", "two"))

    def refresh(found: Any) -> None:
        found.api_key["BearerToken"] = f"bearer {next(tokens)}"

    rotating.refresh_api_key_hook = refresh
    credentials = Credentials(rotating)
    assert credentials.authorization() == "bearer one"
    assert credentials.authorization() == "bearer two"


@pytest.mark.parametrize(("status", "deleted"), [(200, True), (404, True), (409, False)])
async def test_what_is_gone_is_deleted_and_what_was_changed_or_replaced_is_not(
    connect: Connect, status: int, deleted: bool
) -> None:
    client = await connect(lambda _: web.json_response({}, status=status))
    assert await client.delete("/x", "uid", "7") is deleted


async def test_nobody_there_is_unavailable() -> None:
    async with KubeClient(Credentials(configuration("http://127.0.0.1:1"))) as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.get("/x")


def test_paths() -> None:
    assert collection_path("queuejobs") == "/apis/queueoperator.dev/v1alpha1/queuejobs"
    assert object_path("queuejobs", "ns", "n").endswith("/namespaces/ns/queuejobs/n")
