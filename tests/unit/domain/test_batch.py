"""What is wrong with the jobs of a batch: all of it, by place."""

from dataclasses import replace
from typing import Any

import pytest

from queue_operator.domain.batch import (
    CheckedJobs,
    check_batch,
    check_each,
    followers,
    moved_to,
    together,
    unplaced,
)
from queue_operator.domain.dependencies import on_circles
from queue_operator.domain.errors import (
    DuplicateJob,
    Fault,
    InvalidArgument,
    KeyConflict,
    PayloadTooLarge,
    StaleLease,
)
from queue_operator.domain.job import Job
from queue_operator.domain.limits import DEFAULT_LIMITS

GOOD = Job(id="a", type="t")


def test_a_batch_names_the_index() -> None:
    with pytest.raises(InvalidArgument, match=r"jobs\[1\].type"):
        check_batch([GOOD, Job(id="b", type="")])


def test_a_batch_names_repeated_ids_by_index() -> None:
    with pytest.raises(DuplicateJob) as caught:
        check_batch([GOOD, Job(id="b", type="t"), GOOD, GOOD])
    assert caught.value.indexes == (2, 3)


def test_each_job_of_a_batch_is_told_what_is_wrong_with_it() -> None:
    circle = [Job(id="c", type="t", depends_on=("d",)), Job(id="d", type="t", depends_on=("c",))]
    errors = check_each([GOOD, Job(id="b", type=""), GOOD, *circle])
    assert [type(errors.get(n)) for n in range(3)] == [type(None), InvalidArgument, DuplicateJob]
    assert {str(errors[n]) for n in (3, 4)} == {
        "jobs[3].depends_on: job 'c' waits for itself through the batch",
        "jobs[4].depends_on: job 'd' waits for itself through the batch",
    }


@pytest.mark.parametrize("jobs", [None, "jobs", b"jobs", {GOOD.id: GOOD}, iter([GOOD])])
def test_a_batch_is_a_sequence(jobs: Any) -> None:
    with pytest.raises(InvalidArgument, match="jobs: "):
        check_batch(jobs)


def test_jobs_that_were_checked_are_not_looked_at_again_under_the_same_limits() -> None:
    long = Job(id="x" * 50, type="t")
    checked = CheckedJobs([GOOD, long, GOOD], DEFAULT_LIMITS)
    assert list(check_each(checked, DEFAULT_LIMITS)) == [2]
    stricter = replace(DEFAULT_LIMITS, id_characters=40)
    assert list(check_each(checked, stricter)) == [1, 2]


def test_one_that_repeats_another_is_right_as_it_is_when_it_is_sent_apart() -> None:
    first = Job(id="a", type="t", idempotency_key="k", correlation_id="1")
    again = replace(first, correlation_id="2")
    assert check_each([first, first, again]) == {}
    # What they hold the store compares.
    assert check_each([first, replace(first, payload=b"other")]) == {}
    for other in (
        replace(first, idempotency_key="another"),
        replace(first, idempotency_key=""),
    ):
        assert list(check_each([first, other])) == [1]


def test_all_that_is_wrong_is_told() -> None:
    jobs = [GOOD, Job(id="b", type=""), GOOD, Job(id="c", type="t", tags=frozenset({""}))]
    with pytest.raises(
        InvalidArgument, match=r"jobs\[1\].type: must not be empty \(and 2 more\)"
    ) as e:
        check_batch(jobs)
    assert e.value.findings == (
        Fault("jobs[1].type", "INVALID_REQUEST", "must not be empty"),
        Fault("jobs[2].id", "DUPLICATE", "already exists", "a"),
        Fault("jobs[3].tags", "INVALID_REQUEST", "must not be empty"),
    )


def test_ids_that_are_taken_come_before_keys_and_those_before_the_rest() -> None:
    missing = InvalidArgument("jobs[0].depends_on[0]", "there is no job 'x' to wait for")
    clashes = {n: KeyConflict(f"k{n}", f"j{n}", f"jobs[{n}].idempotency_key") for n in (4, 2)}
    lead = together({0: missing, **clashes})
    assert isinstance(lead, KeyConflict)
    assert (lead.key, lead.job_id, lead.field) == ("k2", "j2", "jobs[2].idempotency_key")
    assert (lead.indexes, lead.job_ids) == ((2, 4), ("j2", "j4"))
    assert [one.field for one in lead.findings] == [
        "jobs[0].depends_on[0]",
        "jobs[2].idempotency_key",
        "jobs[4].idempotency_key",
    ]
    assert [one.job_id for one in lead.findings] == ["", "j2", "j4"]
    taken = {n: DuplicateJob((f"j{n}",), (n,)) for n in (5, 7)}
    lead = together({0: missing, **clashes, **taken, 9: StaleLease("p")})
    assert isinstance(lead, DuplicateJob)
    assert (lead.indexes, lead.job_ids, len(lead.findings)) == ((5, 7), ("j5", "j7"), 6)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "id: already exists: j0"),
        (5, "id: already exists: j0, j1, j2, j3, j4"),
        (10_000, "id: already exists: j0, j1, j2, j3, j4 and 9995 more"),
    ],
)
def test_of_many_ids_that_are_taken_a_few_are_named(count: int, told: str) -> None:
    taken = {n: DuplicateJob((f"j{n}",), (n,)) for n in range(count)}
    lead = together(taken)
    assert str(lead) == told
    assert isinstance(lead, DuplicateJob)
    assert len(lead.job_ids) == len(lead.indexes) == count
    # What is wrong beside that is counted apart.
    missing = InvalidArgument("jobs[10000].depends_on[0]", "there is no job 'p' to wait for")
    assert str(together({**taken, 10_000: missing})) == f"{told} (and 1 more)"


def test_what_is_no_job_has_no_field() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_batch([GOOD, 7])  # type: ignore[list-item]
    assert str(caught.value) == "jobs[1]: must be a Job, not int"


def test_one_thing_that_is_wrong_is_told_as_it_is() -> None:
    only = KeyConflict("k", "j", "jobs[3].idempotency_key")
    assert together({3: only}) is only
    assert (only.findings, only.indexes, only.job_ids) == ((), (), ("j",))


@pytest.mark.parametrize(
    ("parents", "circles"),
    [
        ({"a": ["b"], "b": ["a"]}, "ab"),
        ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "e": ["d"]}, "abc"),
        ({"a": ["b"], "b": ["a"], "x": ["a"], "c": ["x", "d"], "d": ["c"]}, "abcd"),
        ({"a": ["b", "c"], "b": ["a"], "c": ["b"]}, "abc"),
        ({"a": ["outside", "b"], "b": ["outside"]}, ""),
        ({"a": ["b"], "b": ["c", "d"], "c": ["d"]}, ""),
        ({}, ""),
    ],
)
def test_on_circles_are_those_that_wait_for_themselves(
    parents: dict[str, list[str]], circles: str
) -> None:
    assert on_circles(parents) == set(circles)


def test_circles_without_number_and_long_ones_are_found_in_one_pass() -> None:
    rings = {f"{n}": [f"{n ^ 1}"] for n in range(20_000)}
    assert on_circles(rings) == set(rings)
    long = {f"{n}": [f"{(n + 1) % 20_000}"] for n in range(20_000)}
    assert on_circles(long) == set(long)


def test_who_waits_for_a_refused_job_lacks_it_whatever_the_distance() -> None:
    jobs = {n: Job(id=f"{n}", type="t", depends_on=(f"{n - 1}",)) for n in range(1, 1000)}
    jobs[0] = Job(id="0", type="t", depends_on=("nobody",))
    jobs[1000] = Job(id="apart", type="t", depends_on=("stored",))
    jobs[1001] = Job(id="there", type="t", namespace="there", depends_on=("5",))
    found = followers(jobs, [0])
    assert list(found) == list(range(1, 1000))
    assert str(found[7]) == "jobs[7].depends_on[0]: there is no job '6' to wait for"


def test_an_error_is_told_of_the_place_that_the_caller_knows() -> None:
    large = PayloadTooLarge("jobs[1].payload", 5, 4)
    assert [str(moved_to(7, error)).partition(":")[0] for error in (large, GOOD_ERROR)] == [
        "jobs[7].payload",
        "jobs[7].tags",
    ]
    assert str(unplaced(GOOD_ERROR)) == "tags: is odd"


GOOD_ERROR = InvalidArgument("jobs[1].tags", "is odd")
