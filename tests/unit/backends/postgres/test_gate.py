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
    assert gate.learn([MAIL], gate.version) is False
    assert not gate.lets(*MAIL)
    assert gate.learn([MAIL], gate.version) is False
    assert gate.learn([WHOLE], gate.version) is True
    assert gate.learn([], gate.version) is True
    assert gate.is_open


def test_an_answer_that_is_older_than_what_it_knows_changes_nothing() -> None:
    gate = Gate()
    asked_at = gate.version
    gate.shut(*MAIL)
    assert gate.learn([], asked_at) is False
    assert not gate.lets(*MAIL)
    asked_at = gate.version
    gate.open(*MAIL)
    assert gate.learn([MAIL], asked_at) is False
    assert gate.is_open
