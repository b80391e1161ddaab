"""Settings of the environment that cannot be meant."""

import os

import pytest

from queue_operator.cli.environment import read_settings


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert ended.value.code == 1
    return capsys.readouterr().err.splitlines()


def test_a_caller_or_namespace_that_is_given_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_AUTH__TOKENS", '{"ci": "secret", "ci": "other"}')
    quotas = '{"a": {"pending_jobs": 1}, "b": {"pending_jobs": 1, "pending_jobs": 2}}'
    monkeypatch.setenv("QUEUE_OPERATOR_QUOTAS__NAMESPACES", quotas)
    monkeypatch.setenv("QUEUE_OPERATOR_LIMITS", '{"tags": 1, "tags": 2}')
    assert sorted(told(capsys)[1:]) == [
        "  QUEUE_OPERATOR_AUTH__TOKENS: 'ci' is given twice: keep one of the two",
        "  QUEUE_OPERATOR_LIMITS: 'tags' is given twice: keep one of the two",
        "  QUEUE_OPERATOR_QUOTAS__NAMESPACES: 'pending_jobs' is given twice: keep one of the two",
    ]


def test_an_address_with_a_port_is_refused_where_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_REST__HOST", "[::]:8080")
    monkeypatch.setenv("QUEUE_OPERATOR_GRPC__HOST", "[::1]")
    [_, fault] = told(capsys)
    assert fault.startswith("  QUEUE_OPERATOR_REST__HOST: '[::]:8080' is no address")


def test_a_variable_that_is_no_text_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_DATABASE__DSN", os.fsdecode(b"host=\xff"))
    assert told(capsys)[1:] == ["  QUEUE_OPERATOR_DATABASE__DSN: is not UTF-8"]
