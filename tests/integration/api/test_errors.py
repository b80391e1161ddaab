"""Every way to be refused has one shape."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.integration.api.door import TOKEN, Door, check_error

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.settings import Settings
from queue_operator.testing.clauses import proves

MIB = 1024 * 1024


@proves("external-api.ErrorCodes.rule.5")
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer", TOKEN, f"Basic {TOKEN}"])
async def test_who_is_unknown_gets_401(door: Door, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    async with httpx.AsyncClient(base_url=door.url, headers=headers) as stranger:
        for method, path in [("GET", "/v1/stats"), ("GET", "/v1/jobs/x"), ("POST", "/v1/jobs")]:
            answer = await stranger.request(method, path)
            check_error(answer, 401, "UNAUTHORIZED")
            assert answer.headers["www-authenticate"] == "Bearer"


@proves("external-api.ErrorCodes.rule.1")
async def test_a_missing_job_and_a_missing_route(door: Door) -> None:
    job = await door.call("GET", "/v1/jobs/nope")
    check_error(job, 404, "NOT_FOUND")
    assert job.json()["details"] == []
    # A client must not take a wrong address for a missing job.
    for path in ("/v1/nope", "/", "/v1/v1/jobs/nope"):
        route = await door.call("GET", path)
        check_error(route, 404, "NOT_FOUND")
        assert [one["code"] for one in route.json()["details"]] == ["NO_SUCH_PATH"]


@proves("external-api.ErrorCodes.expect.1")
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/jobs"), ("PATCH", "/v1/jobs/x"), ("POST", "/v1/stats")]
)
async def test_other_methods_get_405(door: Door, method: str, path: str) -> None:
    answer = await door.call(method, path)
    check_error(answer, 405, "INVALID_REQUEST")
    assert answer.headers["allow"]


@proves("external-api.ErrorCodes.expect.1")
@pytest.mark.parametrize("headers", [{"content_type": "text/plain"}, {"content_encoding": "gzip"}])
async def test_other_content_gets_415(door: Door, headers: dict[str, str]) -> None:
    answer = await door.send("/v1/jobs", b'{"type":"t","payload":1}', **headers)
    check_error(answer, 415, "INVALID_REQUEST")


@proves("external-api.ErrorCodes.rule.2")
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"nonsense", b'{"type":"\xff"}', b'\xef\xbb\xbf{"type":"t"}']
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_what_is_no_json_object_gets_400(door: Door, path: str, body: bytes) -> None:
    check_error(await door.send(path, body), 400, "INVALID_REQUEST")


@proves("external-api.APIError.rule.2", "external-api.APIError.rule.6")
@pytest.mark.parametrize("field", ["jobId", "retries", "typo"])
async def test_an_unknown_field_is_named(door: Door, field: str) -> None:
    answer = await door.call("POST", "/v1/jobs", {"type": "t", "payload": 1, field: None})
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert error["details"] == [
        {"field": field, "code": "UNKNOWN_FIELD", "message": "is not a field of this request"}
    ]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"include_results": "true"}, "include_results"),
        ({"include_result": "perhaps"}, "include_result"),
        ({"include_history": ["true", "true"]}, "include_history"),
        ({"namespace": ""}, "namespace"),
        ({"namespace": "x" * 256}, "namespace"),
        ({"namespace": "a\x00b"}, "namespace"),
    ],
)
async def test_a_faulty_parameter_is_named(door: Door, params: dict[str, str], field: str) -> None:
    error = check_error(await door.call("GET", "/v1/jobs/x", **params), 400, "INVALID_REQUEST")
    assert [detail["field"] for detail in error["details"]] == [field]


@pytest.mark.parametrize("tag", ["x" * 129, "a\x00b"])
async def test_a_faulty_tag_is_named(door: Door, tag: str) -> None:
    error = check_error(await door.call("GET", "/v1/stats", tag=tag), 400, "INVALID_REQUEST")
    assert [detail["field"] for detail in error["details"]] == ["tag"]


@proves("external-api.APIError.rule.7")
async def test_faults_do_not_repeat_the_payload(door: Door) -> None:
    answer = await door.call("POST", "/v1/jobs", {"type": 1, "payload": "a-secret"})
    assert "a-secret" not in answer.text


@pytest.mark.parametrize("depth", [101, 1_000, 100_000])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_depth_bombs_get_400(door: Door, path: str, depth: int) -> None:
    job = b'{"type":"t","payload":' + b"[" * depth + b"]" * depth + b"}"
    body = job if path == "/v1/jobs" else b'{"jobs":[' + job + b"]}"
    check_error(await door.send(path, body), 400, "INVALID_REQUEST")


@proves("external-api.ErrorCodes.expect.1")
async def test_a_payload_over_its_limit_gets_413(door: Door) -> None:
    given = {"type": "t", "payload": "x" * (MIB - 1)}
    error = check_error(await door.call("POST", "/v1/jobs", given), 413, "INVALID_REQUEST")
    assert error["details"][0]["field"] == "payload"
    given["payload"] = "x" * (MIB - 2)
    assert (await door.call("POST", "/v1/jobs", given)).status_code == 201


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_a_body_over_the_limit_gets_413(door: Door, path: str) -> None:
    check_error(await door.send(path, b"x" * (16 * MIB + 1)), 413, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_an_endless_body_is_cut_off(door: Door, path: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        # Not declared, so that only counting can end it.
        for _ in range(80):
            yield b"x" * MIB

    check_error(await door.send(path, endless()), 413, "INVALID_REQUEST")
    assert (await door.call("GET", "/v1/stats")).status_code == 200


async def test_a_full_batch_of_large_jobs_is_stored(door: Door) -> None:
    jobs = [{"type": "t", "payload": "x" * (MIB - 2)} for _ in range(15)]
    answer = await door.call("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert (answer.status_code, answer.json()["accepted"]) == (201, 15)


async def test_a_caller_that_leaves_does_no_harm(door: Door) -> None:
    host, port = door.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(
            f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
        )
    assert (await door.call("GET", "/v1/stats")).json()["total"] == 0


async def test_the_callers_request_id_is_kept(door: Door) -> None:
    answer = await door.http.get("/v1/jobs/nope", headers={"x-request-id": "trace-1"})
    assert check_error(answer, 404, "NOT_FOUND")["request_id"] == "trace-1"
    assert (await door.call("GET", "/v1/stats")).headers["x-request-id"]


@proves("external-api.APIError.rule.4")
@pytest.mark.parametrize("given", ["of-the-caller-7", None])
async def test_a_refusal_can_be_found_by_the_id_of_its_request(
    door: Door, caplog: pytest.LogCaptureFixture, given: str | None
) -> None:
    job_id = await door.submitted(job_id=f"taken-{given}")
    refused: list[tuple[int, str, str, object]] = [
        (404, "GET", "/v1/jobs/nope", None),
        (400, "POST", "/v1/jobs", {"payload": 1}),
        (409, "POST", "/v1/jobs", {"type": "t", "payload": 1, "job_id": job_id}),
        (405, "PUT", "/v1/jobs", {}),
        (401, "GET", "/v1/stats", None),
    ]
    for status, method, path, body in refused:
        headers = {"x-request-id": given} if given else {}
        if status == 401:
            headers["authorization"] = "Bearer nobody's"
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "queue_operator"):
            answer = await door.http.request(
                method, path, json=body, headers=headers, params={"namespace": door.namespace}
            )
        assert answer.status_code == status, answer.text
        told = answer.json()["request_id"]
        assert told == (given or told) == answer.headers["x-request-id"] != ""
        [line] = [one for one in caplog.messages if f"request {told}:" in one]
        assert f"{method} {path}: {status} {answer.json()['code']}" in line


@proves("external-api.APIError.rule.4")
async def test_a_fault_of_the_server_is_logged_under_the_id_of_its_request(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    with door.outage(), caplog.at_level(logging.WARNING):
        answer = await door.call("GET", "/v1/stats")
    error = check_error(answer, 503, "INTERNAL_ERROR")
    [line] = [one for one in caplog.messages if error["request_id"] in one]
    # What the answer does not say.
    assert "PostgreSQL" in line


@pytest.mark.parametrize("given", ["", "x" * 129, 'a"b', "a b"])
async def test_an_unusable_request_id_is_replaced(door: Door, given: str) -> None:
    answer = await door.http.get("/v1/jobs/nope", headers={"x-request-id": given})
    assert check_error(answer, 404, "NOT_FOUND")["request_id"] not in ("", given)


@proves("external-api.ErrorCodes.rule.7")
async def test_a_store_that_is_down_gets_503_and_recovers(door: Door) -> None:
    job_id = await door.submitted()
    with door.outage():
        for answer in (
            await door.call("POST", "/v1/jobs", {"type": "t", "payload": 1}),
            await door.call("POST", "/v1/jobs/batch", {"jobs": [{"type": "t", "payload": 1}]}),
            await door.call("GET", f"/v1/jobs/{job_id}"),
            await door.call("POST", f"/v1/jobs/{job_id}/cancel", {}),
            await door.call("GET", "/v1/stats"),
        ):
            check_error(answer, 503, "INTERNAL_ERROR")
            assert int(answer.headers["retry-after"]) >= 1
            # The reason names hosts and accounts; it is in the log, under the request's id.
            assert "PostgreSQL" not in answer.text
    assert (await door.status(job_id))["state"] == "SCHEDULED"


async def test_an_outage_of_the_store_takes_no_endpoint_away(door: Door) -> None:
    async with httpx.AsyncClient(base_url=door.probes) as probe:

        async def asked(path: str) -> tuple[int, object]:
            answer = await probe.get(path)
            assert "PostgreSQL" not in answer.text
            return answer.status_code, answer.json()

        ready = (200, {"status": "ok", "checks": {"doors": "ok"}})
        assert await asked("/readyz") == ready
        assert await asked("/readyz/store") == (200, {"status": "ok", "checks": {"store": "ok"}})
        with door.outage():
            assert await asked("/readyz") == ready
            status, told = await asked("/readyz/store")
            assert (status, told["status"]) == (503, "not ready")  # type: ignore[index]
            assert (await probe.get("/healthz")).status_code == 200
        assert (await asked("/readyz/store"))[0] == 200
        assert await asked("/readyz/nobody") == (
            404,
            {"status": "not found", "checks": ["doors", "store"]},
        )


class _Faulty(QueueService):
    """A queue with a fault of its own."""

    async def get_job(self, job_id: str, *, namespace: str = "default") -> Job:
        raise KeyError("secret detail")


@proves("external-api.ErrorCodes.rule.7")
async def test_a_fault_of_ours_gets_500_without_its_story(
    door: Door, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    queue = _Faulty(door.backend)
    server = RestServer(create_app(queue, *build(settings.auth), settings), settings.rest)
    await server.start()
    with caplog.at_level(logging.ERROR):
        async with httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as http:
            answer = await http.get("/v1/jobs/x?include_result=true")
    await server.stop()
    error = check_error(answer, 500, "INTERNAL_ERROR")
    assert "secret detail" not in json.dumps(error)
    assert error["request_id"] in caplog.text
    assert "secret detail" in caplog.text


async def test_a_taken_port_is_an_error(door: Door, settings: Settings) -> None:
    port = int(door.url.rpartition(":")[2])
    taken = settings.rest.model_copy(update={"port": port})
    server = RestServer(create_app(door.queue, *build(settings.auth), settings), taken)
    with pytest.raises(OSError, match="the port is taken; set QUEUE_OPERATOR_REST__PORT"):
        await server.start()
    await server.stop()


async def test_many_callers_at_once(door: Door) -> None:
    async def one(n: int) -> Any:
        return await door.submitted(job_id=f"many-{n}")

    await asyncio.gather(*(one(n) for n in range(200)))
    assert (await door.call("GET", "/v1/stats")).json()["total"] == 200
