from queue_operator.controller.resync import Listed, compare
from queue_operator.controller.sightings import Sightings

LISTED = {uid: Listed(uid, "ns", f"name-{uid}") for uid in ("a", "b")}


def test_both_sides_of_the_difference() -> None:
    difference = compare(LISTED, [("ns", "b"), ("ns", "c")], ())
    assert difference.missing == [("ns", "c")]
    assert [item.uid for item in difference.unknown] == ["a"]


def test_jobs_of_namespaces_that_were_not_listed_are_left_alone() -> None:
    assert compare(LISTED, [("other", "c")], ("ns",)).missing == []


def test_a_finished_object_leaves_the_watch_without_a_question() -> None:
    sightings = Sightings()
    sightings.remember("a", 2)
    sightings.finished("a")
    assert sightings.forget("a")
    assert not sightings.forget("a")
    assert sightings.generation("a") == 0


def test_generations_only_rise() -> None:
    sightings = Sightings()
    sightings.remember("a", 3)
    sightings.remember("a", 2)
    assert sightings.generation("a") == 3


def test_finishing_what_was_never_seen_leaves_no_trace() -> None:
    sightings = Sightings()
    sightings.finished("a")
    assert len(sightings) == 0
    assert not sightings.forget("a")
