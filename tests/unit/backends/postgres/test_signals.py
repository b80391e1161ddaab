"""What a process remembers of the versions of topics that it raised itself."""

from queue_operator.backends.news import Topic
from queue_operator.backends.postgres.signals import MOST_OWN, Seen


def test_a_process_that_never_reads_remembers_the_newest_of_its_own() -> None:
    seen = Seen("me")
    for version in range(1, 3 * MOST_OWN + 1):
        seen.raise_own({Topic.READY: version, Topic.MIRROR: version})
    assert {topic: len(own) for topic, own in seen._own.items()} == {
        Topic.READY: MOST_OWN,
        Topic.MIRROR: MOST_OWN,
    }


def test_own_rises_that_were_forgotten_are_news() -> None:
    seen = Seen("me")
    seen.rebase({Topic.READY: 0})
    for version in range(1, MOST_OWN + 1):
        seen.raise_own({Topic.READY: version})
    assert seen.note({Topic.READY: MOST_OWN}) == {}
    for version in range(MOST_OWN + 1, 2 * MOST_OWN + 2):
        seen.raise_own({Topic.READY: version})
    assert seen.note({Topic.READY: 2 * MOST_OWN + 1}) == {Topic.READY: None}
    assert seen.note({Topic.READY: 2 * MOST_OWN + 1}) == {}
    seen.raise_own({Topic.READY: 2 * MOST_OWN + 2})
    assert seen.note({Topic.READY: 2 * MOST_OWN + 2}) == {}


def test_a_rise_is_remembered_once_however_often_it_is_told() -> None:
    seen = Seen("me")
    seen.raise_own({Topic.READY: 1})
    for _ in range(MOST_OWN):
        seen.raise_own({Topic.READY: 2})
    assert seen.note({Topic.READY: 2}) == {}
