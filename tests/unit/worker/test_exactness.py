"""A Decimal gets the number that was submitted, or the job does not run."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from queue_operator.worker import JobContext, PermanentError, Worker
from queue_operator.worker.testing import run_handler


class Money(BaseModel):
    amount: Decimal = Decimal(0)
    lines: list[Decimal] = []
    count: int = 0
    ratio: float = 0.0
    note: str = ""
    data: Any = None


worker = Worker()


@worker.handler("money")
def money(ctx: JobContext, payload: Money) -> object:
    return payload.model_dump()


@worker.handler("decimal")
def decimal(ctx: JobContext, payload: Decimal) -> Decimal:
    return payload


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (b'{"amount": 1234567890123456.78}', "amount"),
        (b'{"lines": [1.5, 0.12345678901234567891]}', "lines.1"),
        (b'{"amount": 1e-400}', "amount"),
        (b'{"count": 9007199254740993.0}', "count"),
        (b'{"data": {"amount": 0.5}, "amount": 123456789012345678.25}', "amount"),
    ],
)
def test_a_number_that_was_rounded_is_refused_by_its_place(payload: bytes, place: str) -> None:
    with pytest.raises(PermanentError, match=f"{place}: has more digits.*as text") as caught:
        run_handler(worker, "money", payload)
    assert caught.value.code == "INVALID_PAYLOAD"


def test_so_is_a_payload_that_is_one_number() -> None:
    with pytest.raises(PermanentError, match="payload: has more digits"):
        run_handler(worker, "decimal", b"1234567890123456.78")
    assert run_handler(worker, "decimal", b"12345678901234567890123") == 12345678901234567890123


@pytest.mark.parametrize(
    ("payload", "field", "value"),
    [
        (b'{"amount": "1234567890123456.78"}', "amount", Decimal("1234567890123456.78")),
        (b'{"amount": 123456789.10}', "amount", Decimal("123456789.1")),
        (b'{"amount": 1e2}', "amount", Decimal(100)),
        (b'{"amount": 1234567890123456789}', "amount", Decimal(1234567890123456789)),
        (b'{"ratio": 0.1234567890123456789}', "ratio", 0.12345678901234568),
        (b'{"data": 0.1234567890123456789, "amount": 0.5}', "data", 0.12345678901234568),
        (b'{"note": "1234567890123456.78"}', "note", "1234567890123456.78"),
        (b'{"note": "1e5", "amount": 0.1}', "amount", Decimal("0.1")),
    ],
)
def test_all_others_are_exact_or_were_never_meant_to_be(
    payload: bytes, field: str, value: object
) -> None:
    assert run_handler(worker, "money", payload)[field] == value
