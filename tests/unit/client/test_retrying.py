"""Requests that a server could not serve are sent again, and stored once."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.unit.client.scripted import Answer, Script, serving

from queue_operator.client import AsyncQueueClient, QueueClient, RetryPolicy, Submission, file_token
from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    Unauthenticated,
    Unavailable,
)

STORED = Answer(201, {"job_id": "x", "status": "ACCEPTED", "state": "SCHEDULED"})
CLOSED = Answer(0)


def error(status: int, code: str, *fields: str, **headers: str) -> Answer:
    details = [{"field": field, "code": code, "message": "bad"} for field in fields]
    body = {"code": code, "message": f"told {code}", "details": details, "request_id": "r1"}
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


DOWN = error(503, "INTERNAL_ERROR", retry_after="7")
DUPLICATE = error(409, "DUPLICATE", "job_id")


def client(script: Script, pauses: list[float], attempts: int = 3) -> QueueClient:
    policy = RetryPolicy(attempts=attempts, rng=lambda: 0.5)
    return QueueClient(script.url, retry=policy, sleep=pauses.append)


def test_a_store_that_is_down_is_asked_again_after_what_it_says() -> None:
    pauses: list[float] = []
    with serving(DOWN, DOWN, STORED) as script, client(script, pauses) as queue:
        assert queue.submit(Submission(type="t", payload=1)).job_id == "x"
    assert pauses == [7.0, 7.0]
    ids = {asked.body["job_id"] for asked in script.asked}
    assert len(script.asked) == 3
    assert len(ids) == 1


def test_without_a_word_from_the_server_the_pause_doubles() -> None:
    policy = RetryPolicy(initial_delay_s=1, max_delay_s=5, rng=lambda: 1.0)
    assert [policy.pause_s(n, None) for n in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]


def test_it_gives_up() -> None:
    pauses: list[float] = []
    with (
        serving(DOWN) as script,
        client(script, pauses) as queue,
        pytest.raises(Unavailable, match="told INTERNAL_ERROR"),
    ):
        queue.get("x")
    assert len(script.asked) == 3
    assert len(pauses) == 2


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with serving(STORED) as script:
        pass
    with client(script, []) as queue, pytest.raises(Unavailable, match="cannot be reached"):
        queue.stats()


def test_a_lost_answer_does_not_store_the_job_twice() -> None:
    with serving(CLOSED, DUPLICATE) as script, client(script, []) as queue:
        result = queue.submit(Submission(type="t", payload=1))
    assert result.status == "ACCEPTED"
    assert result.job_id == script.asked[0].body["job_id"]


def test_an_own_id_that_is_taken_is_a_duplicate_even_after_a_retry() -> None:
    with (
        serving(CLOSED, DUPLICATE) as script,
        client(script, []) as queue,
        pytest.raises(DuplicateJob),
    ):
        queue.submit(Submission(type="t", payload=1, job_id="mine"))
    assert [asked.body["job_id"] for asked in script.asked] == ["mine", "mine"]


def test_a_duplicate_at_the_first_try_is_one() -> None:
    with (
        serving(DUPLICATE) as script,
        client(script, []) as queue,
        pytest.raises(DuplicateJob),
    ):
        queue.submit(Submission(type="t", payload=1))


def test_a_lost_answer_to_an_atomic_batch() -> None:
    taken = error(409, "DUPLICATE", "jobs[0].job_id", "jobs[1].job_id")
    with serving(CLOSED, taken) as script, client(script, []) as queue:
        result = queue.submit_batch([Submission(type="t", payload=n) for n in range(2)])
    assert (result.total, result.accepted, result.rejected) == (2, 2, 0)
    sent = [job["job_id"] for job in script.asked[0].body["jobs"]]
    assert [item.job_id for item in result.results] == sent


def echo_as_duplicates(script: Script) -> None:
    jobs = script.asked[0].body["jobs"]
    refused = {"code": "DUPLICATE", "message": "taken", "details": []}
    items = [{"job_id": job["job_id"], "status": "REJECTED", "error": refused} for job in jobs]
    body = {"total": len(items), "accepted": 0, "rejected": len(items), "results": items}
    script.answers[:] = [Answer(200, body)]


def test_a_lost_answer_to_a_batch_that_is_not_atomic() -> None:
    with serving(CLOSED, DOWN) as script:
        policy = RetryPolicy(rng=lambda: 0.0)
        queue = QueueClient(script.url, retry=policy, sleep=lambda _: echo_as_duplicates(script))
        jobs = [Submission(type="t", payload=1), Submission(type="t", payload=1, job_id="mine")]
        result = queue.submit_batch(jobs, atomic=False)
        queue.close()
    # The id that we made can only be ours; the caller's own may be another's job.
    assert [item.status for item in result.results] == ["ACCEPTED", "REJECTED"]
    assert (result.accepted, result.rejected) == (1, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 500])
def test_refusals_are_not_asked_again(status: int) -> None:
    with serving(error(status, "INTERNAL_ERROR")) as script, client(script, []) as queue:
        with pytest.raises(Exception, match="told INTERNAL_ERROR"):
            queue.get("x")
        assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("token", "header"),
    [(None, None), ("secret", "Bearer secret"), (lambda: "made", "Bearer made")],
)
def test_the_token_is_sent(token: str | Callable[[], str] | None, header: str | None) -> None:
    with serving(STORED) as script, QueueClient(script.url, token) as queue:
        queue.submit(Submission(type="t", payload=1))
    assert script.asked[0].headers.get("authorization") == header


def test_a_token_file_is_read_again_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with serving(STORED) as script, QueueClient(script.url, file_token(file)) as queue:
        queue.submit(Submission(type="t", payload=1))
        file.write_text("second\n")
        queue.submit(Submission(type="t", payload=1))
    sent = [asked.headers["authorization"] for asked in script.asked]
    assert sent == ["Bearer first", "Bearer second"]


async def test_the_asynchronous_client_does_the_same() -> None:
    pauses: list[float] = []

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)

    with serving(DOWN, CLOSED, DUPLICATE) as script:
        policy = RetryPolicy(rng=lambda: 0.5)
        async with AsyncQueueClient(script.url, "secret", retry=policy, sleep=pause) as queue:
            result = await queue.submit(Submission(type="t", payload=1))
    assert result.status == "ACCEPTED"
    assert pauses == [7.0, 0.2]
    assert all(asked.headers["authorization"] == "Bearer secret" for asked in script.asked)


def test_what_is_sent() -> None:
    stats = Answer(200, {"running": 0, "total": 0, "total_retries": 0, "counts": {}})
    with serving(stats) as script, client(script, []) as queue:
        queue.stats(tags=["a=b", "c"], namespace="team a")
    (asked,) = script.asked
    assert (asked.method, asked.body) == ("GET", None)
    assert asked.path == "/v1/stats?namespace=team+a&tag=a%3Db&tag=c"


@pytest.mark.parametrize(
    "url", ["localhost:8080", "localhost", "", "ftp://a", "http://", "http://a:b"]
)
@pytest.mark.parametrize("kind", [QueueClient, AsyncQueueClient])
def test_an_address_that_is_no_url_is_refused_at_once(kind: type[QueueClient], url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"must be .* as in http://localhost:8080") as caught:
        kind(url)
    assert caught.value.field == "url"


async def test_each_port_given_in_place_of_the_other_is_named() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncQueueClient(f"http://127.0.0.1:{port}", retry=RetryPolicy(attempts=1)) as rest:
        with pytest.raises(Unavailable, match=r"give the one of REST \(8080\)"):
            await rest.get("x")
    await server.stop(None)
    with serving(STORED) as script:
        address = script.url.removeprefix("http://")
        async with GrpcQueue(address, repeats=Repeats(attempts=1)) as queue:
            with pytest.raises(Unavailable, match=r"give the one of gRPC \(port 50051\)"):
                await queue.get_job("x")


@pytest.mark.parametrize("held", [b"\xff\xfe", "größe".encode()])
def test_a_file_that_holds_no_token_is_named(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    with (
        QueueClient("http://127.0.0.1:1", token=file_token(file)) as queue,
        pytest.raises(Unauthenticated, match="token"),
    ):
        queue.get("x")
