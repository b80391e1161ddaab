"""Secrets of namespaces as files that change, as a mounted Secret does."""

import base64
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.webhooks.secrets import LOOK_EVERY_S, MOST, Secrets
from queue_operator.webhooks.signing import Secret

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def text_of(letter: str) -> str:
    return "whsec_" + base64.b64encode(letter.encode() * 32).decode()


def signs(secrets: tuple[Secret, ...]) -> str:
    """The letters of the secrets."""
    known = {Secret.of(text_of(one)).sign("m", _AT, ""): one for one in "abcdefghij"}
    return "".join(known[secret.sign("m", _AT, "")] for secret in secrets)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self) -> None:
        self.now += LOOK_EVERY_S


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").write_text(f"{text_of('b')}\n{text_of('a')}\n")
    (tmp_path / "lab").write_text(text_of("c"))
    return tmp_path


def test_each_namespace_has_its_own_in_their_order(folder: Path, clock: Clock) -> None:
    secrets = Secrets(folder, clock)
    assert signs(secrets.of("shop")) == "ba"
    assert signs(secrets.of("lab")) == "c"
    assert secrets.of("other") == ()


def test_without_a_folder_nobody_has_any(clock: Clock) -> None:
    assert Secrets(None, clock).of("shop") == ()


@pytest.mark.parametrize("name", ["..", ".", "", "../shop", "/etc/passwd", "shop/../shop", ".old"])
def test_a_namespace_leads_to_no_other_file(folder: Path, clock: Clock, name: str) -> None:
    (folder / ".old").write_text(text_of("d"))
    assert Secrets(folder, clock).of(name) == ()


def test_a_rotation_is_seen_within_a_second(folder: Path, clock: Clock) -> None:
    secrets = Secrets(folder, clock)
    (folder / "shop").write_text(f"{text_of('d')}\n{text_of('b')}\n{text_of('a')}\n")
    (folder / "new").write_text(text_of("e"))
    (folder / "lab").unlink()
    assert signs(secrets.of("shop")) == "ba"
    clock.pass_by()
    assert signs(secrets.of("shop")) == "dba"
    assert signs(secrets.of("new")) == "e"
    assert secrets.of("lab") == ()


def test_a_mounted_secret_is_replaced_as_a_whole(tmp_path: Path, clock: Clock) -> None:
    for version, letter in (("..1", "a"), ("..2", "b")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "shop").write_text(text_of(letter))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "shop").symlink_to("..data/shop")
    secrets = Secrets(tmp_path, clock)
    assert signs(secrets.of("shop")) == "a"
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    clock.pass_by()
    assert signs(secrets.of("shop")) == "b"


def test_a_bad_change_leaves_them_as_they_were_and_is_told_once(
    folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = Secrets(folder, clock)
    (folder / "shop").write_text("geheim")
    (folder / "lab").write_text(text_of("d"))
    for _ in range(3):
        clock.pass_by()
        assert signs(secrets.of("shop")) == "ba"
    assert signs(secrets.of("lab")) == "d"
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 1
    assert "shop: secret 1 must be whsec_" in told[0]
    assert "geheim" not in told[0]
    (folder / "shop").write_text(text_of("e"))
    clock.pass_by()
    assert signs(secrets.of("shop")) == "e"


def test_a_folder_that_went_away_leaves_them_as_they_were(
    folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = Secrets(folder, clock)
    away = folder.rename(folder.with_name("away"))
    for _ in range(3):
        clock.pass_by()
        assert signs(secrets.of("shop")) == "ba"
    assert len(caplog.records) == 1
    away.rename(folder)
    (folder / "shop").write_text(text_of("f"))
    clock.pass_by()
    assert signs(secrets.of("shop")) == "f"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"geheim",
        text_of("a").encode() + b"\ngeheim",
        b"\xff\xfe",
        "\n".join([text_of("a")] * (MOST + 1)).encode(),
        b" " * 20_000 + text_of("a").encode(),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_where_a_file_could_never_be_used_nothing_is_signed_and_nobody_else_waits(
    folder: Path, clock: Clock, content: bytes, is_new: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "shop").unlink()
    if is_new:
        secrets = Secrets(folder, clock)
        assert secrets.of("shop") == ()
    (folder / "shop").write_bytes(content)
    if not is_new:
        secrets = Secrets(folder, clock)
    for _ in range(3):
        clock.pass_by()
        with pytest.raises(InvalidArgument, match="shop") as raised:
            secrets.of("shop")
        assert raised.value.field == "webhooks.secrets_dir"
        assert "geheim" not in str(raised.value)
        assert signs(secrets.of("lab")) == "c"
    assert [one.levelno for one in caplog.records].count(logging.ERROR) == 1
    (folder / "shop").write_text(text_of("e"))
    clock.pass_by()
    assert signs(secrets.of("shop")) == "e"


def test_what_cannot_be_looked_at_is_of_one_namespace(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Secrets(folder, clock)
    (folder / "circle").symlink_to("circle")
    (folder / "lab").write_text(text_of("d"))
    clock.pass_by()
    with pytest.raises(InvalidArgument, match="circle"):
        secrets.of("circle")
    assert (signs(secrets.of("lab")), signs(secrets.of("shop"))) == ("d", "ba")


def test_a_folder_that_is_not_there_stops_the_start(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        Secrets(tmp_path / "none", clock)
