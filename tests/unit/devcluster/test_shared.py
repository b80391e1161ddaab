"""What runs of the tests share is there while one of them uses it, and gone afterwards."""

import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.shared import used

Use = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def happened() -> list[str]:
    return []


@pytest.fixture
def use(tmp_path: Path, happened: list[str]) -> Use:
    """As a run does: each opens the lock for itself."""
    lock = tmp_path / "shared.lock"

    def is_free(path: Path, how: int) -> bool:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def start() -> str:
        happened.append("start")
        assert not is_free(tmp_path / "shared.turn", fcntl.LOCK_EX), "another may start it as well"
        assert not is_free(lock, fcntl.LOCK_EX), "another may remove it"
        return "it"

    def remove() -> None:
        happened.append("remove")
        assert not is_free(tmp_path / "shared.turn", fcntl.LOCK_EX), "another may start it"
        assert not is_free(lock, fcntl.LOCK_SH), "another may use it"

    return lambda *, keep=False: used(lock, start, remove, keep=keep)


def test_what_was_left_goes_first_and_nothing_is_left(use: Use, happened: list[str]) -> None:
    for _ in range(2):
        with use() as it:
            assert it == "it"
            assert happened == ["remove", "start"]
        assert happened == ["remove", "start", "remove"]
        happened.clear()


def test_the_last_of_all_who_share_it_removes_it(use: Use, happened: list[str]) -> None:
    """Also where another comes when the first one has gone, and the second has not."""
    first, second, third = use(), use(), use()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    third.__enter__()
    second.__exit__(None, None, None)
    assert happened == ["remove", "start", "start", "start"]
    third.__exit__(None, None, None)
    assert happened == ["remove", "start", "start", "start", "remove"]


def test_who_keeps_it_removes_nothing_and_has_nobody_remove_it(
    use: Use, happened: list[str]
) -> None:
    with use(keep=True):
        with use():
            pass
        assert happened == ["start", "start"]
    assert happened == ["start", "start"]


def test_what_does_not_start_is_removed(tmp_path: Path, happened: list[str]) -> None:
    def start() -> None:
        raise OSError("no port is free")

    shared = used(tmp_path / "it.lock", start, lambda: happened.append("remove"), keep=False)
    with pytest.raises(OSError, match="no port"), shared:
        pass
    assert happened == ["remove", "remove"]
