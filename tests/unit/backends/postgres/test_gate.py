"""What a replica knows of the pauses, and what may change it."""

from queue_operator.backends.postgres.gate import Gate

MAIL = ("default", "mail")
WHOLE = ("default", "")


def test_a_type_is_shut_and_opened_alone() -> None:
    gate = Gate()
    assert gate.is_open
    gate.shut(*MAIL)
    assert not gate.is_open
    assert not gate.lets(*MAIL)
    assert gate.lets("default", "report")
    assert gate.lets("other", "mail")
    gate.open(*MAIL)
    assert gate.is_open
    assert gate.lets(*MAIL)


def test_a_namespace_is_shut_for_all_its_types() -> None:
    gate = Gate()
    gate.shut(*WHOLE)
    gate.shut(*MAIL)
    assert not gate.lets("default", "report")
    gate.open(*WHOLE)
    assert gate.lets("default", "report")
    assert not gate.lets(*MAIL)


def test_it_learns_what_the_table_says() -> None:
    gate = Gate()
    assert gate.learn([MAIL]) is False
    assert not gate.lets(*MAIL)
    assert gate.learn([MAIL]) is False
    assert gate.learn([WHOLE]) is True
    assert gate.learn([]) is True
    assert gate.is_open


def test_its_version_rises_only_when_something_changes() -> None:
    gate = Gate()
    gate.open(*MAIL)
    gate.learn([])
    assert gate.version == 0
    gate.shut(*MAIL)
    gate.shut(*MAIL)
    gate.learn([MAIL])
    assert gate.version == 1
