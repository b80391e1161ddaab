"""Whatever is sent: never a fault of ours, never its story, and the server goes on."""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.api.door import TOKEN, Door

from queue_operator.api.operation import Operation
from queue_operator.api.routes import OPERATIONS
from queue_operator.testing.clauses import proves

BODIES = [one for one in OPERATIONS if one.body is not None]
FIELDS = sorted({name for one in BODIES if one.body for name in one.body.model.model_fields})
NASTY: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"a":',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b'{"type":"\xed\xa0\x80"}',
    b'{"type":"\\ud800"}',
    b'{"\\u0000":1}',
    b'{"type":"t","type":"u","payload":1}',
    b'{"type":"t","payload":' + b"9" * 5000 + b"}",
    b'{"type":"t","payload":-1e999}',
    b'{"type":"t","payload":NaN}',
    b'{"limit":1e400}',
    b'{"limit":' + b"9" * 5000 + b"}",
    b"[" * 200,
    b"[" * 100_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    b'{"filter":' + b'{"filter":' * 500 + b"1" + b"}" * 501,
    b'"' + b"x" * 100_000,
    b"\x00" * 1000,
    b'{"jobs":[' + b"{}," * 2000 + b"{}]}",
    b'{"jobs":[' + b"1," * 999 + b"[[[[1]]]]]}",
    b'{"job_ids":[' + b'"a",' * 20_000 + b'"a"]}',
    b'{"tags":{' + b",".join(b'"%d":"x"' % n for n in range(2000)) + b"}}",
]


async def sent(door: Door, operation: Operation[Any], body: bytes, **headers: str) -> Any:
    wanted = {"content-type": "application/json", **headers}
    return await door.http.request(
        operation.method,
        operation.path.replace("{job_id}", "none"),
        content=body,
        headers=wanted,
        params={"namespace": door.namespace},
    )


def check_calm(answer: Any) -> None:
    """An answer of ours, and no more of it than is good for a stranger."""
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    assert len(answer.content) < 1_000_000
    if answer.status_code >= 400:
        assert {"code", "message", "details", "request_id"} <= set(answer.json())
        assert answer.json()["message"]


@proves("external-api.Robustness.expect.1", "external-api.Robustness.expect.2")
@pytest.mark.parametrize("operation", BODIES, ids=lambda operation: operation.id)
async def test_no_body_disturbs_the_server(
    door: Door, operation: Operation[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for body in NASTY:
            check_calm(await sent(door, operation, body))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/json; charset=utf-16"}, 400),
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "br, gzip"}, 415),
        ({"accept": "text/html"}, 400),
    ],
)
async def test_headers_are_taken_or_refused(
    door: Door, headers: dict[str, str], status: int
) -> None:
    for operation in BODIES:
        answer = await sent(door, operation, b"[]", **headers)
        check_calm(answer)
        assert answer.status_code == status, answer.text


async def raw(door: Door, request: bytes) -> bytes:
    """What the server says to these bytes, until it closes or for as long as it is silent."""
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


AUTH = f"Authorization: Bearer {TOKEN}\r\nHost: x\r\nConnection: close\r\n".encode()
JSON = b"Content-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/jobs/%ff HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs/%zz HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs/%00 HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs/%ed%a0%80/why HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs/" + b"x" * 60_000 + b" HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs?type=%ff&type=%00 HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs?" + b"type=a&" * 5000 + b" HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs?namespace=%ff HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET //v1//jobs HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/../v1/stats?namespace= HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"GET /v1/jobs/\xc3\xa9 HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"BREW /v1/jobs HTTP/1.1\r\n" + AUTH + b"\r\n",
        b"POST /v1/jobs HTTP/1.1\r\n" + AUTH + JSON + b"Content-Length: -5\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\n" + AUTH + JSON + b"Content-Length: 99999999999\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\n" + AUTH + JSON + b"Content-Length: 5\r\n\r\n{}",
        b"POST /v1/jobs HTTP/1.1\r\n" + AUTH + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nAuthorization: \xff\xfe\r\nHost: x\r\n"
        b"Connection: close\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"\x00\x01\x02",
    ],
)
async def test_no_bytes_disturb_the_server(
    door: Door, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await raw(door, request_bytes)
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer[:200]
    assert b"Traceback" not in answer
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert (await door.call("GET", "/v1/stats")).status_code == 200


@pytest.mark.parametrize("line", [b"X: " + b"a" * 2000 + b"\r\n", b"a" * 2000])
async def test_a_head_that_does_not_end_is_cut_off(door: Door, line: bytes) -> None:
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v1/stats HTTP/1.1\r\nX: ")
    with suppress(ConnectionError):
        for _ in range(10_000):
            writer.write(line)
            await writer.drain()
    assert writer.transport.is_closing() or reader.at_eof()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    assert (await door.call("GET", "/v1/stats")).status_code == 200


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize("who", [AUTH, b"Host: x\r\n"])
@pytest.mark.parametrize("line", [b"a:\r\n" * 4000, b"a" * 16_000])
async def test_trailers_that_do_not_end_are_cut_off(door: Door, who: bytes, line: bytes) -> None:
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v1/jobs HTTP/1.1\r\n" + who.replace(b"Connection: close\r\n", b"")
    writer.write(head + JSON + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: ")
    with suppress(ConnectionError):
        for _ in range(2000):
            writer.write(line)
            await writer.drain()
    assert writer.transport.is_closing() or reader.at_eof()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_body_in_many_chunks_is_no_head(door: Door) -> None:
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/jobs?namespace={door.namespace} HTTP/1.1\r\n".encode() + AUTH
    writer.write(head + JSON + CHUNKED + b"\r\n" + b"1\r\n \r\n" * 100_000)
    writer.write(b'19\r\n{"type":"t","payload":12}\r\n0\r\nauthorization: x\r\n\r\n')
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 201"), answer[:200]


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from(["PT5M", "2030-01-01T00:00:00Z", "RUNNING", "HIGH", "http://x", "AFTER", ""]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text()), inner, max_size=4),
    ),
    max_leaves=12,
)
_DOCUMENTS = st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text()), _VALUES, max_size=6)


@proves("external-api.Robustness.expect.2")
@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operation=st.sampled_from(BODIES), document=_DOCUMENTS)
async def test_no_document_disturbs_the_server(
    door: Door, operation: Operation[Any], document: dict[str, Any]
) -> None:
    body = json.dumps(document).encode()
    check_calm(await sent(door, operation, body))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operation=st.sampled_from([one for one in OPERATIONS if not one.streams]),
    job_id=st.text(max_size=20),
    name=st.sampled_from(["cursor", "limit", "state", "tag", "time_range", "include_result", "x"]),
    value=st.text(max_size=20),
)
async def test_no_address_disturbs_the_server(
    door: Door, operation: Operation[Any], job_id: str, name: str, value: str
) -> None:
    path = operation.path.replace("{job_id}", quote(job_id, safe="", errors="replace"))
    answer = await door.http.request(
        operation.method,
        f"{path}?{name}={quote(value, safe='', errors='replace')}&namespace={door.namespace}",
        content=b"{}" if operation.body else None,
        headers={"content-type": "application/json"},
    )
    check_calm(answer)
