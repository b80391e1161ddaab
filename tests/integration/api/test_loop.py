"""No request of the REST door holds the event loop, however large it is, or wrong."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import pytest
from pytest_asyncio import fixture
from tests.integration.api.door import TOKEN, Door
from tests.loops import MOST_HELD_S, LoopWatch

from queue_operator.api.routes import OPERATIONS
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

MIB: Final = 1024 * 1024
LONG: Final = "x" * 255
ZEROS: Final = "[" + ",".join("0" * (MIB // 2 - 8)) + "]"
"""A mebibyte of JSON in as many values as there can be."""
IDS: Final = [f"{n:0255}" for n in range(10_000)]
Request = tuple[str, str, bytes]
"""Method, what comes after the version, and the body."""
Make = Callable[[], Request]


def post(path: str, document: Any) -> Request:
    return "POST", path, json.dumps(document).encode()


def get(path: str, **query: Any) -> Request:
    return "GET", f"{path}?{urlencode(query, doseq=True)}", b""


def job(**fields: Any) -> dict[str, Any]:
    return {"type": "t", "payload": 1, **fields}


def raw(path: str, body: str) -> Request:
    return "POST", path, body.encode()


def keyed(n: int, payload: str) -> str:
    return f'{{"type":"t","idempotency_key":"k{n}","payload":{payload}}}'


def batch(*jobs: str, atomic: bool = True) -> str:
    return f'{{"jobs":[{",".join(jobs)}],"atomic":{str(atomic).lower()}}}'


def waiting(prefix: str, number: int, parents: Callable[[int], list[int]]) -> list[dict[str, Any]]:
    return [
        job(job_id=f"{prefix}{n}", depends_on=[f"{prefix}{p}" for p in parents(n)])
        for n in range(number)
    ]


def before(most: int) -> Callable[[int], list[int]]:
    return lambda n: list(range(max(n - most, 0), n))


REQUESTS: Final[dict[str, dict[str, Make]]] = {
    "submitJob": {
        "most values": lambda: raw("/jobs", keyed(0, ZEROS)),
        "longest text": lambda: post("/jobs", job(payload="\x00" * (MIB - 2))),
        "too large": lambda: raw("/jobs", keyed(0, "[" + ",".join("0" * 3 * MIB) + "]")),
        "too deep": lambda: raw("/jobs", f'{{"type":"t","payload":{"[" * MIB}'),
        "unknown fields": lambda: post("/jobs", job(**{f"f{n}": 1 for n in range(100_000)})),
        "many tags": lambda: post("/jobs", job(tags={str(n): "" for n in range(100_000)})),
        "many parents": lambda: post("/jobs", job(depends_on=IDS[:1001] * 4)),
        "no JSON": lambda: raw("/jobs", '{"type":"t","payload":' + "1" * MIB),
    },
    "submitBatch": {
        "most jobs": lambda: post("/jobs/batch", {"jobs": [job()] * 1000}),
        "most bytes under keys": lambda: raw(
            "/jobs/batch", batch(*(keyed(n, ZEROS) for n in range(15)))
        ),
        "most bytes under one key": lambda: raw(
            "/jobs/batch",
            batch(*(keyed(0, f"{' ' * n}{ZEROS}") for n in range(15)), atomic=False),
        ),
        "most dependencies": lambda: post("/jobs/batch", {"jobs": waiting("m", 1000, before(10))}),
        "too many dependencies": lambda: post(
            "/jobs/batch", {"jobs": waiting("e", 1000, before(999))}
        ),
        "rings": lambda: post("/jobs/batch", {"jobs": waiting("r", 1000, lambda n: [n ^ 1])}),
        "one ring": lambda: post(
            "/jobs/batch",
            {"jobs": waiting("o", 1000, lambda n: [(n + 1) % 1000]), "atomic": False},
        ),
        "a line without a head": lambda: post(
            "/jobs/batch", {"jobs": waiting("l", 1000, lambda n: [n + 1]), "atomic": False}
        ),
        "all faulty": lambda: post(
            "/jobs/batch",
            {"jobs": [{f"f{m}": 1 for m in range(100)}] * 1000, "atomic": False},
        ),
        "too many jobs": lambda: raw("/jobs/batch", batch(*["0"] * (2 * MIB))),
        "all of one id": lambda: post(
            "/jobs/batch", {"jobs": [job(job_id="same", idempotency_key="same")] * 1000}
        ),
    },
    "getJob": {"longest id": lambda: get(f"/jobs/{'%C3%A9' * 255}", include_history="true")},
    "explainJob": {"longest id": lambda: get(f"/jobs/{LONG}/why")},
    "getVerdict": {"longest type": lambda: get("/verdict", type=LONG)},
    "listWorkers": {"all": lambda: get("/workers")},
    "listWaiting": {"most": lambda: get("/waiting", limit=20)},
    "listFailing": {"longest": lambda: get("/failures/clusters", type=LONG, time_range="P398D")},
    "getSeries": {"longest": lambda: get("/stats/series", time_range="P398D")},
    "getAccess": {"all": lambda: get("/access")},
    "getFailure": {"longest id": lambda: get(f"/jobs/{LONG}/failure")},
    "getLog": {"longest id": lambda: get(f"/jobs/{LONG}/logs", lines=1000)},
    "cancelJob": {"longest reason": lambda: post(f"/jobs/{LONG}/cancel", {"reason": "x" * 1024})},
    "suspendJob": {"longest id": lambda: post(f"/jobs/{LONG}/suspend", {})},
    "resumeJob": {"longest id": lambda: post(f"/jobs/{LONG}/resume", {})},
    "retryJob": {"all options": lambda: post(f"/jobs/{LONG}/retry", {"delay": "PT1H"})},
    "deleteJob": {"longest id": lambda: ("DELETE", f"/jobs/{LONG}", b"")},
    "cancelJobs": {
        "most ids": lambda: post("/jobs/cancel", {"job_ids": IDS, "reason": "x" * 1024}),
        "too many ids": lambda: post("/jobs/cancel", {"job_ids": ["j"] * (3 * MIB)}),
        "odd ids": lambda: post("/jobs/cancel", {"job_ids": ["\x00" * 200] * 10_000}),
        "widest filter": lambda: post(
            "/jobs/cancel", {"filter": {"types": IDS[:1000], "tags": {"a": "b"}}}
        ),
    },
    "retryJobs": {
        "most ids": lambda: post("/jobs/retry", {"job_ids": IDS, "priority": "LOW"}),
        "widest filter": lambda: post("/jobs/retry", {"filter": {"types": IDS[:1000]}}),
    },
    "deleteJobs": {
        "most ids": lambda: post("/jobs/delete", {"job_ids": IDS}),
        "widest filter": lambda: post("/jobs/delete", {"filter": {"types": IDS[:1000]}}),
    },
    "searchJobs": {
        "widest": lambda: post("/jobs/search", {"types": IDS[:1000], "limit": 1000}),
        "too wide": lambda: post("/jobs/search", {"types": ["t"] * 200_000}),
        "many tags": lambda: post("/jobs/search", {"tags": {str(n): "" for n in range(50_000)}}),
    },
    "searchFailures": {
        "widest": lambda: post(
            "/failures/search", {"types": IDS[:1000], "pagination": {"limit": 1000}}
        ),
    },
    "listJobs": {
        "longest address": lambda: get("/jobs", type=["t"] * 990, limit=1000),
        "too many parameters": lambda: get("/jobs", type=["t"] * 5000),
    },
    "getStats": {
        "all of it": lambda: get(
            "/stats", breakdown_by=["TYPE", "PRIORITY", "STATE"], time_range="P30D"
        ),
        "many tags": lambda: get("/stats", tag=["t"] * 900),
    },
    "listWebhooks": {"most": lambda: get("/webhooks", job_id=LONG, limit=1000)},
    "getWebhook": {"longest id": lambda: get(f"/webhooks/{LONG}")},
    "redeliverWebhooks": {
        "most ids": lambda: post("/webhooks/redeliver", {"ids": IDS[:1000]}),
        "too many ids": lambda: raw("/webhooks/redeliver", '{"ids":["' + "x" * MIB + '"]}'),
    },
    "purgeWebhooks": {
        "most ids": lambda: post("/webhooks/purge", {"ids": IDS[:1000]}),
        "rehearsed": lambda: post("/webhooks/purge", {"state": "FAILED", "dry_run": True}),
    },
    "listPauses": {"of all": lambda: get("/pauses")},
    "pause": {"longest": lambda: post("/pauses", {"type": LONG, "reason": "x" * 1024})},
    "resume": {"longest": lambda: ("DELETE", f"/pauses?{urlencode({'type': LONG})}", b"")},
}


class Stranger:
    """`stranger.py`, running."""

    def __init__(self, process: asyncio.subprocess.Process, body: Path) -> None:
        self._process = process
        self._body = body

    async def ask(self, door: Door, request: Request, watch: LoopWatch) -> int:
        """The status of the answer; `watch` looks at the server alone."""
        method, path, body = request
        address = urlsplit(door.url)
        sign = "&" if "?" in path else "?"
        self._body.write_bytes(body)
        asked = {
            "host": address.hostname,
            "port": address.port,
            "method": method,
            "path": f"/v1{path}{sign}namespace={door.namespace}",
            "headers": {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            "body": str(self._body),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with watch:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            return int(await self._process.stdout.readline())


@fixture(loop_scope="session")
async def stranger(tmp_path: Path) -> AsyncIterator[Stranger]:
    pipe = asyncio.subprocess.PIPE
    program = Path(__file__).with_name("stranger.py")
    process = await asyncio.create_subprocess_exec(sys.executable, program, stdin=pipe, stdout=pipe)
    yield Stranger(process, tmp_path / "body")
    process.kill()
    await process.wait()


def test_every_operation_is_tried() -> None:
    """But for streams, which take no more than a list does, and do not end."""
    assert {operation.id for operation in OPERATIONS if not operation.streams} == set(REQUESTS)


@pytest.mark.parametrize(
    ("operation", "what"), [(one, what) for one, sizes in REQUESTS.items() for what in sizes]
)
async def test_no_request_holds_the_loop(
    door: Door, stranger: Stranger, operation: str, what: str
) -> None:
    watch = LoopWatch()
    status = await stranger.ask(door, REQUESTS[operation][what](), watch)
    assert status < 500
    assert watch.longest_s < MOST_HELD_S


async def test_no_answer_holds_the_loop(door: Door, stranger: Stranger) -> None:
    """The largest there are: a thousand jobs of a page, and the most that a job can give."""
    await door.told("POST", "/v1/jobs/batch", {"jobs": [job(tags={"a": "b"})] * 1000})
    large = await door.submitted(priority="CRITICAL")
    await door.claimed(large)
    done = Outcome(large, Event.COMPLETE, door.namespace, result=ZEROS.encode())
    await door.backend.settle([done._replace(result_content_type="application/json")])
    every = {"filter": {"all": True}}
    for request in (
        get(f"/jobs/{large}", include_result="true", include_history="true"),
        post("/jobs/search", {"limit": 1000}),
        post("/jobs/cancel", every),
        post("/jobs/delete", every),
    ):
        watch = LoopWatch()
        assert await stranger.ask(door, request, watch) == 200
        assert watch.longest_s < MOST_HELD_S, request[:2]
