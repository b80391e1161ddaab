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
    JobNotFound,
    QuotaExceeded,
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
    keys = {asked.body["idempotency_key"] for asked in script.asked}
    assert len(script.asked) == 3
    assert len(keys) == 1


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
        queue.pauses()


def again(at: int = 0, **others: object) -> dict[str, object]:
    first = f"first-{at}"
    return {"job_id": first, "status": "DUPLICATE", "existing_job_id": first, **others}


def test_a_lost_answer_does_not_store_the_job_twice() -> None:
    with serving(CLOSED, Answer(200, again())) as script, client(script, []) as queue:
        result = queue.submit(Submission(type="t", payload=1))
    # Nobody else knows the key, so the first try stored it.
    assert (result.status, result.job_id) == ("ACCEPTED", "first-0")
    keys = [asked.body["idempotency_key"] for asked in script.asked]
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert "job_id" not in script.asked[0].body


def test_a_key_of_the_caller_is_a_duplicate_as_told() -> None:
    with serving(CLOSED, Answer(200, again())) as script, client(script, []) as queue:
        result = queue.submit(Submission(type="t", payload=1, idempotency_key="mine"))
    assert (result.status, result.existing_job_id) == ("DUPLICATE", "first-0")
    assert [asked.body["idempotency_key"] for asked in script.asked] == ["mine", "mine"]


def test_a_job_with_an_own_id_is_not_stored_twice_either() -> None:
    with serving(CLOSED, Answer(200, again())) as script, client(script, []) as queue:
        result = queue.submit(Submission(type="t", payload=1, job_id="first-0"))
    assert result.status == "ACCEPTED"
    assert len({asked.body["idempotency_key"] for asked in script.asked}) == 1


def test_an_own_id_that_is_taken_is_a_duplicate_even_after_a_retry() -> None:
    with (
        serving(CLOSED, DUPLICATE) as script,
        client(script, []) as queue,
        pytest.raises(DuplicateJob) as caught,
    ):
        queue.submit(Submission(type="t", payload=1, job_id="mine"))
    assert caught.value.job_ids == ("mine",)
    assert [asked.body["job_id"] for asked in script.asked] == ["mine", "mine"]


def test_a_lost_answer_to_a_batch() -> None:
    items = [again(0), again(1), {"job_id": "c", "status": "ACCEPTED"}]
    body = {"total": 3, "accepted": 3, "rejected": 0, "results": items}
    jobs = [
        Submission(type="t", payload=1),
        Submission(type="t", payload=1, idempotency_key="mine"),
        Submission(type="t", payload=2),
    ]
    with serving(CLOSED, Answer(201, body)) as script, client(script, []) as queue:
        result = queue.submit_batch(jobs)
    # Of a key of the caller's own nobody knows who used it first.
    assert [item.status for item in result.results] == ["ACCEPTED", "DUPLICATE", "ACCEPTED"]
    assert script.asked[0].body == script.asked[1].body
    assert len({job["idempotency_key"] for job in script.asked[0].body["jobs"]}) == 3


def test_a_duplicate_at_the_first_try_is_told_as_it_is() -> None:
    with serving(Answer(200, again())) as script, client(script, []) as queue:
        assert queue.submit(Submission(type="t", payload=1)).status == "DUPLICATE"


def test_a_deletion_whose_answer_was_lost_is_done() -> None:
    missing = error(404, "NOT_FOUND")
    with serving(CLOSED, missing) as script, client(script, []) as queue:
        queue.delete("x")
    with serving(missing) as script, client(script, []) as queue, pytest.raises(JobNotFound):
        queue.delete("x")


QUEUED = Answer(200, {"job_id": "x", "status": "QUEUED", "new_state": "RETRYING"})


@pytest.mark.parametrize("lost", [CLOSED, DOWN])
def test_a_retry_that_may_have_happened_is_not_sent_again(lost: Answer) -> None:
    with serving(lost, QUEUED) as script, client(script, []) as queue, pytest.raises(Unavailable):
        queue.retry("x")
    assert len(script.asked) == 1


def test_a_retry_that_was_refused_is_sent_again() -> None:
    full = error(429, "QUOTA_EXCEEDED", retry_after="2")
    pauses: list[float] = []
    with serving(full, QUEUED) as script, client(script, pauses) as queue:
        assert queue.retry("x").status == "QUEUED"
    assert pauses == [2.0]


def test_a_retry_that_reached_nobody_is_sent_again() -> None:
    pauses: list[float] = []
    with serving(QUEUED) as script:
        pass
    with client(script, pauses) as queue, pytest.raises(Unavailable, match="cannot be reached"):
        queue.retry("x")
    assert len(pauses) == 2


def full(retry_after_s: int) -> Answer:
    quota = {"limit": "pending_jobs", "current": 9, "maximum": 9, "retry_after": retry_after_s}
    body = {"code": "QUOTA_EXCEEDED", "message": "full", "quota": quota}
    return Answer(429, body, {"retry-after": str(retry_after_s)})


def test_a_quota_is_waited_for_as_long_as_it_says() -> None:
    pauses: list[float] = []
    with serving(full(3), STORED) as script, client(script, pauses) as queue:
        assert queue.submit(Submission(type="t", payload=1)).job_id == "x"
    assert pauses == [3.0]


def test_a_quota_that_takes_longer_than_we_wait_is_an_error_at_once() -> None:
    with (
        serving(full(60)) as script,
        client(script, []) as queue,
        pytest.raises(QuotaExceeded) as caught,
    ):
        queue.submit(Submission(type="t", payload=1))
    assert caught.value.retry_after_s == 60.0
    assert len(script.asked) == 1


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

    with serving(DOWN, CLOSED, Answer(200, again())) as script:
        policy = RetryPolicy(rng=lambda: 0.5)
        async with AsyncQueueClient(script.url, "secret", retry=policy, sleep=pause) as queue:
            result = await queue.submit(Submission(type="t", payload=1))
    assert result.status == "ACCEPTED"
    assert pauses == [7.0, 0.2]
    assert all(asked.headers["authorization"] == "Bearer secret" for asked in script.asked)


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
