"""Ids sort by time and say what they are."""

import uuid

from queue_operator.api.ids import new_job_id


def test_ids_are_uuid_version_7() -> None:
    parsed = uuid.UUID(new_job_id())
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_ids_differ_and_sort_by_time() -> None:
    ids = [new_job_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    # The last 62 bits are random; the 60 of the time before them only grow.
    assert [each[:18] for each in ids] == sorted(each[:18] for each in ids)
