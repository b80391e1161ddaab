"""The columns of the lake. Everything is typed here; nothing is inferred from files."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


LANE: Final = _struct(
    namespace=StringType(),
    type=StringType(),
    priority=StringType(),
    tags=ArrayType(StringType()),
)
"""One of `job_event.lanes`: what jobs of a statement were submitted as."""

FAILED: Final = ArrayType(_struct(category=StringType(), code=StringType()))
"""`job_event.failed`: why an attempt failed, one entry per job."""

BRONZE: Final = _struct(
    seq=LongType(),
    ordinal=IntegerType(),
    at=TimestampType(),
    schema_version=ShortType(),
    event=StringType(),
    job_no=LongType(),
    from_state=StringType(),
    to_state=StringType(),
    attempt=IntegerType(),
    wait_us=LongType(),
    run_us=LongType(),
    worker=StringType(),
    id=StringType(),
    namespace=StringType(),
    type=StringType(),
    tags=ArrayType(StringType()),
    priority=StringType(),
    correlation_id=StringType(),
    error_category=StringType(),
    error_code=StringType(),
    # From here on the columns are folders.
    generation=IntegerType(),
    run=StringType(),
    kind=StringType(),
    day=DateType(),
)
"""One row per job and transition. `seq`, `ordinal` and `at` together name an event for
ever: after a restore a sequence number may be given again, but not at the same instant."""

EVENT_KEY: Final = ("seq", "ordinal", "at")
SUBMIT: Final = "SUBMIT"
"""The event of a submission, which is no event of the state table."""

KIND_SUBMISSION: Final = "submission"
KIND_TRANSITION: Final = "transition"
