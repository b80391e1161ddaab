"""Errors come out of a failed call as they went in."""

import grpc
import pytest

from queue_operator.domain import errors
from queue_operator.domain.batch import together
from queue_operator.testing.clauses import proves
from queue_operator.wire.status import (
    ERROR_CODE_KEY,
    ERROR_KEY,
    error_from_status,
    error_to_wire,
    status_code,
    status_text,
    trailers,
)
from queue_operator.wire.v1 import queue_pb2 as pb

EVERY = [
    errors.InvalidArgument("jobs[3].tags", "has 40 entries"),
    errors.PayloadTooLarge("payload", 20, 10),
    errors.DuplicateJob(("a", "ü"), (0, 7)),
    errors.KeyConflict("kéy", "j", "jobs[1].idempotency_key"),
    errors.JobNotFound("j", "team"),
    errors.PositionExpired(),
    errors.MessageNotFound("m", "team"),
    errors.InvalidTransition("j", "COMPLETED", "FAIL"),
    errors.StaleLease("j"),
    errors.QuotaExceeded("jobs", 12, 10, 1.5),
    errors.Unauthenticated("who"),
    errors.Forbidden("not you"),
    errors.Unavailable("away"),
    errors.AccessRefused("wrong password"),
    errors.SchemaMismatch("too old"),
    errors.MissingPrivilege("grant it"),
    errors.QueueError("odd"),
]


def sent(error: errors.QueueError) -> errors.QueueError:
    return error_from_status(status_code(error), status_text(error), trailers(error))


@proves("queue-api.WorkerPlane.rule.3")
@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_the_same_exception(error: errors.QueueError) -> None:
    back = sent(error)
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            errors.InvalidArgument("jobs[1].timeout_s", "is too long"),
            "jobs[1].timeout: is too long",
        ),
        (
            errors.with_findings(
                errors.InvalidArgument("jobs[0].delay_s", "is too long"),
                [errors.Fault("jobs[0].delay_s", "INVALID_REQUEST", "is too long")],
                3,
            ),
            "jobs[0].delay: is too long (and 2 more)",
        ),
        (errors.JobNotFound("delay_s", "team"), "job 'delay_s' does not exist in namespace 'team'"),
    ],
)
def test_who_has_no_library_reads_the_names_of_the_messages(
    error: errors.QueueError, told: str
) -> None:
    assert status_text(error) == told
    assert dict(trailers(error))[ERROR_KEY] == error_to_wire(error).SerializeToString()
    assert error_to_wire(error).message == told


def test_a_batch_that_never_fits_has_no_time_to_come_again() -> None:
    error = errors.QuotaExceeded("pending_jobs", 0, 5, None, 6)
    back = sent(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_no_error_is_left_out() -> None:
    def below(kind: type[errors.QueueError]) -> set[type[errors.QueueError]]:
        own = {k for k in kind.__subclasses__() if k.__module__ == errors.__name__}
        return own.union({kind}, *(below(k) for k in own))

    assert below(errors.QueueError) == {type(error) for error in EVERY}


def test_an_error_of_a_part_of_the_product_is_told_as_the_nearest_known() -> None:
    class Odd(errors.Forbidden):
        pass

    back = sent(Odd("not now"))
    assert (type(back), str(back)) == (errors.Forbidden, "not now")


def test_the_positions_of_a_large_batch_travel_and_its_ids_do_not() -> None:
    ids = tuple(f"{n:0250}" for n in range(3000))
    back = sent(errors.DuplicateJob(ids, tuple(range(3000))))
    assert isinstance(back, errors.DuplicateJob)
    assert (back.indexes, back.job_ids) == (tuple(range(3000)), ())


def test_what_is_wrong_with_a_batch_comes_back_with_all_of_it_while_it_is_little() -> None:
    error = together(
        {
            0: errors.KeyConflict("k", "a", "jobs[0].idempotency_key"),
            3: errors.KeyConflict("l", "b", "jobs[3].idempotency_key"),
            4: errors.InvalidArgument("jobs[4].depends_on[0]", "there is no job 'x' to wait for"),
        }
    )
    back = sent(error)
    assert isinstance(back, errors.KeyConflict)
    assert (str(back), vars(back)) == (str(error), vars(error))
    assert (back.indexes, back.job_ids, len(back.findings)) == ((0, 3), ("a", "b"), 3)


def test_what_a_status_cannot_hold_is_cut() -> None:
    """Peers take some 8 KiB of trailing metadata."""
    for error in (
        errors.InvalidArgument("f" * 9000, "ü" * 9000),
        errors.JobNotFound("ü" * 255, "n" * 255),
        errors.KeyConflict("\N{SNOWMAN}" * 255, "\N{SNOWMAN}" * 255),
        errors.DuplicateJob(tuple(f"{n:0250}" for n in range(100)), tuple(range(100))),
        errors.Forbidden("x" * 100_000),
        together(
            {
                n: errors.KeyConflict(f"{n:0250}", f"{n:0250}", f"jobs[{n}].idempotency_key")
                for n in range(1000)
            }
        ),
    ):
        size = sum(len(key) + len(value) for key, value in trailers(error))
        assert size + len(status_text(error).encode()) < 6000, type(error)
        assert type(sent(error)) is type(error)


def test_the_stable_code_is_there_for_those_who_read_no_messages() -> None:
    assert (ERROR_CODE_KEY, "STALE_LEASE") in trailers(errors.StaleLease("j"))


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "connection refused", errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", errors.Unavailable),
        (grpc.StatusCode.CANCELLED, "", errors.Unavailable),
        (grpc.StatusCode.UNAUTHENTICATED, "", errors.Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, "", errors.Forbidden),
        (grpc.StatusCode.INVALID_ARGUMENT, "", errors.InvalidArgument),
        (grpc.StatusCode.UNIMPLEMENTED, "", errors.QueueError),
        (grpc.StatusCode.INTERNAL, "", errors.QueueError),
    ],
)
def test_what_grpc_itself_finds_is_an_error_of_ours_too(
    code: grpc.StatusCode, text: str, kind: type[errors.QueueError]
) -> None:
    assert type(error_from_status(code, text, ())) is kind


def test_a_message_that_grpc_finds_too_large_is_told_by_its_sizes() -> None:
    text = "CLIENT: Received message larger than max (10485760 vs. 4194304)"
    back = error_from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, text, ())
    assert isinstance(back, errors.PayloadTooLarge)
    assert (back.size, back.limit) == (10485760, 4194304)


def test_an_error_of_a_newer_server_and_an_unreadable_one_are_still_errors() -> None:
    newer = pb.Error(kind="Embargo", message="not today").SerializeToString()
    back = error_from_status(grpc.StatusCode.UNKNOWN, "", ((ERROR_KEY, newer),))
    assert (type(back), str(back)) == (errors.QueueError, "not today")
    back = error_from_status(grpc.StatusCode.NOT_FOUND, "t", ((ERROR_KEY, b"\xff"),))
    assert (type(back), str(back)) == (errors.QueueError, "NOT_FOUND: t")
