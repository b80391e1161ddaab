"""Failures by what they have in common."""

from datetime import UTC, datetime, timedelta

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.queue.clustering import MOST_CLUSTERS, Clusters

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def failed(number: int, message: str, code: str = "E", type: str = "mail") -> Job:
    return Job(
        id=f"job-{number}",
        type=type,
        error=ErrorInfo(message, code=code),
        failed_at=NOW - timedelta(seconds=number),
    )


def test_messages_of_one_shape_are_one_cluster() -> None:
    jobs = [failed(n, f"host {n} is away") for n in range(5)] + [failed(9, "no such user")]
    [mail] = Clusters.of(jobs).types({"mail": 7}, {"mail": 3})
    assert (mail.type, mail.attempts_failed, mail.completed) == ("mail", 7, 3)
    first, second = mail.clusters
    assert (first.shape, first.count, first.code) == ("host <n> is away", 5, "E")
    assert (first.job_id, first.message, first.newest_at) == ("job-0", "host 0 is away", NOW)
    assert (second.shape, second.count) == ("no such user", 1)


def test_another_code_is_another_cluster_and_the_frequent_one_is_told() -> None:
    found = Clusters.of([failed(0, "x", "A"), failed(1, "x", "B"), failed(2, "y", "B")])
    assert found.code_of("mail") == "B"
    assert found.code_of("unknown") == ""
    [mail] = found.types({}, {})
    assert len(mail.clusters) == 3


def test_the_worst_type_comes_first_also_without_a_failure_that_was_read() -> None:
    found = Clusters.of([failed(0, "x")]).types({"mail": 1, "resize": 8}, {})
    assert [one.type for one in found] == ["resize", "mail"]


def test_of_a_type_the_most_frequent_are_kept() -> None:
    words = [f"{chr(97 + n) * 3} broke" for n in range(MOST_CLUSTERS + 5)]
    jobs = [failed(n, word) for n, word in enumerate(words)] + [failed(99, words[-1])]
    [mail] = Clusters.of(jobs).types({}, {})
    assert len(mail.clusters) == MOST_CLUSTERS
    assert mail.clusters[0].message == words[-1]
