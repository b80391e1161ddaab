"""Static tokens from a file: who they are, what they may do, and what a change of it does."""

import hashlib
import json
import logging
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from queue_operator.auth.factory import build
from queue_operator.auth.protocol import QUEUE_JOBS, QUEUE_JOBS_STATUS, QUEUE_WORKERS
from queue_operator.auth.tokens_file import LOOK_EVERY_S, TokensFile, digest_of
from queue_operator.domain.errors import Forbidden, InvalidArgument, Unauthenticated
from queue_operator.settings import AuthMode, AuthSettings

READER = {"name": "dashboard", "token": "reads", "scopes": ["read"], "namespaces": ["shop", "lab"]}
CI = {"name": "ci", "token": "submits", "scopes": ["submit", "read"]}
OPS = {"name": "ops", "token": "manages", "scopes": ["manage"], "namespaces": ["*"]}
CHIEF = {"name": "chief", "token": "all", "scopes": ["admin"], "namespaces": ["*"]}
LOCAL = {"name": "local", "token": "some", "scopes": ["admin"], "namespaces": ["lab"]}
VERBS = ("get", "list", "create", "update", "delete")


def written(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps({"tokens": entries}))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "tokens.yaml", READER, CI, OPS, CHIEF, LOCAL)


def settings(path: Path) -> AuthSettings:
    return AuthSettings(mode=AuthMode.STATIC, tokens_file=path)


NEEDED = {
    "get": "read",
    "list": "read",
    "create": "submit",
    "update": "manage",
    "delete": "manage",
}


@pytest.mark.parametrize(
    ("token", "namespace", "verbs"),
    [
        ("reads", "shop", {"get", "list"}),
        ("reads", "lab", {"get", "list"}),
        ("reads", "default", set()),
        ("submits", "default", {"get", "list", "create"}),
        ("submits", "shop", set()),
        ("manages", "anywhere", {"update", "delete"}),
        ("all", "anywhere", set(VERBS)),
        ("some", "lab", set(VERBS)),
        ("some", "shop", set()),
    ],
)
async def test_a_token_may_do_what_its_scopes_say(
    path: Path, token: str, namespace: str, verbs: set[str]
) -> None:
    authenticator, authorizer = build(settings(path))
    identity = await authenticator.authenticate(token)
    for verb in VERBS:
        if verb in verbs:
            await authorizer.authorize(identity, verb, QUEUE_JOBS, namespace)
        else:
            wanted = f"may not {verb} queuejobs in namespace '{namespace}': that needs the scope "
            wanted += f"'{NEEDED[verb]}'"
            with pytest.raises(Forbidden, match=wanted):
                await authorizer.authorize(identity, verb, QUEUE_JOBS, namespace)


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("update", QUEUE_JOBS_STATUS, "lab"),
        ("deletecollection", QUEUE_JOBS, "lab"),
        ("delete", QUEUE_WORKERS, ""),
    ],
)
async def test_what_workers_and_administrators_do_needs_the_scope_admin(
    path: Path, verb: str, resource: str, namespace: str
) -> None:
    authenticator, authorizer = build(settings(path))
    with pytest.raises(Forbidden):
        await authorizer.authorize(
            await authenticator.authenticate("manages"), verb, resource, namespace
        )
    await authorizer.authorize(await authenticator.authenticate("all"), verb, resource, namespace)


async def test_a_caller_means_its_first_namespace(path: Path) -> None:
    authenticator, _ = build(settings(path))
    identities = [await authenticator.authenticate(one) for one in ("reads", "submits", "manages")]
    assert [one.namespace for one in identities] == ["shop", "default", "default"]
    assert [one.admin for one in identities] == [False, False, False]
    assert (await authenticator.authenticate("all")).admin
    assert not (await authenticator.authenticate("some")).admin


async def test_an_unknown_token_is_refused(path: Path) -> None:
    authenticator, _ = build(settings(path))
    for token in (None, "", "read", hashlib.sha256(b"reads").hexdigest()):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(token)


async def test_a_token_can_be_given_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    path = tmp_path / "tokens.yaml"
    path.write_text(f"tokens:\n- name: a\n  sha256: {digest}\n  scopes: [read]\n")
    authenticator, _ = build(settings(path))
    assert (await authenticator.authenticate("secret")).name == "a"


class Hand:
    """A clock that is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def names(file: TokensFile) -> set[str]:
    return {identity.name for identity in file.callers().values()}


def test_a_change_is_seen_a_second_later(path: Path) -> None:
    clock = Hand()
    file = TokensFile(path, clock)
    written(path, CI)
    clock.now_s = LOOK_EVERY_S / 2
    assert "ops" in names(file)
    clock.now_s = LOOK_EVERY_S
    assert names(file) == {"ci"}


def test_a_replaced_file_is_seen_though_it_looks_the_same(tmp_path: Path) -> None:
    clock = Hand()
    path = written(tmp_path / "tokens", {**CI, "token": "submits"})
    file = TokensFile(path, clock)
    stat = path.stat()
    other = written(tmp_path / "other", {**CI, "token": "SUBMITS"})
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(path)
    clock.now_s = LOOK_EVERY_S
    assert digest_of("SUBMITS") in file.callers()


@pytest.mark.parametrize(
    "broken",
    [
        '{"tokens": []}',
        "tokens: [",
        "\x00",
        None,
        "name: 2024-99-99",
        "name: !!bool x",
        "name: !!timestamp x",
        "[" * 20_000,
    ],
)
def test_a_broken_change_is_logged_once_and_changes_nothing(
    path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Hand()
    file = TokensFile(path, clock)
    before = names(file)
    path.unlink() if broken is None else path.write_text(broken)
    for second in range(1, 4):
        clock.now_s = second * LOOK_EVERY_S
        assert names(file) == before
    assert caplog.text.count("stay as they were") == 1
    written(path, CI)
    clock.now_s = 9
    with caplog.at_level(logging.INFO):
        assert names(file) == {"ci"}
    assert "read again" in caplog.text


def test_a_file_that_could_not_be_read_is_read_again(path: Path) -> None:
    clock = Hand()
    file = TokensFile(path, clock)
    written(path, CI)
    clock.now_s = LOOK_EVERY_S
    fewest, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        before = names(file)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (fewest, most))
    assert "ops" in before
    clock.now_s = 2 * LOOK_EVERY_S
    assert names(file) == {"ci"}


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([], "no tokens"),
        ([{**CI, "scopes": ["write"]}], r"scopes\.0"),
        ([{**CI, "scopes": []}], "scopes"),
        ([{**CI, "namespaces": []}], "namespaces"),
        ([{**CI, "token": ""}], "token"),
        ([{**CI, "sha256": "0" * 64}], "either token or sha256"),
        ([{"name": "a", "scopes": ["read"]}], "either token or sha256"),
        ([{**CI, "rights": "all"}], "rights"),
        ([CI, {**CI, "token": "other"}], "twice"),
        ([CI, {**CI, "name": "other"}], "twice"),
    ],
)
def test_an_unusable_file_stops_the_start(
    tmp_path: Path, entries: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told) as caught:
        TokensFile(written(tmp_path / "tokens", *entries))
    assert "submits" not in str(caught.value)


@pytest.mark.parametrize("text", ["tokens: [secret", "just secret", b"\xff\xfe"])
def test_a_file_that_is_no_document_stops_the_start(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArgument, match="tokens") as caught:
        build(settings(path))
    assert "secret" not in str(caught.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        build(settings(tmp_path / "missing"))


TWICE = {
    "scopes": """\
tokens:
- name: ci
  token: submits
  scopes: [read]
  scopes: [admin]
""",
    "tokens": """\
tokens: []

tokens:
- {name: ci, token: submits, scopes: [read]}
""",
    "quoted": """\
tokens:
- name: ci
  scopes: [read]
  token: submits
  "scopes": [admin]
""",
    "merged": """\
tokens:
- &one
  name: ci
  token: submits
  scopes: [read]
- <<: *one
  name: other
  sha256: x
  name: third
""",
}
LINE = {"scopes": 5, "tokens": 3, "quoted": 5, "merged": 9}


@pytest.mark.parametrize("kind", TWICE)
def test_a_key_that_is_given_twice_is_refused_at_its_line(
    tmp_path: Path, path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = tmp_path / "first.yaml"
    first.write_text(TWICE[kind])
    told = f"gives a key twice at line {LINE[kind]}: keep one of the two"
    with pytest.raises(InvalidArgument, match=told) as caught:
        build(settings(first))
    assert "submits" not in str(caught.value)
    # Likewise when it is read again.
    clock = Hand()
    file = TokensFile(path, clock)
    before = names(file)
    path.write_text(TWICE[kind])
    clock.now_s = LOOK_EVERY_S
    assert names(file) == before
    assert told in caplog.text


def test_what_is_merged_into_an_entry_is_not_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(
        "tokens:\n- &one {name: a, token: x, scopes: [read]}\n"
        "- &two {<<: *one, name: b, token: y}\n- {<<: *two, name: c, token: z}\n"
    )
    assert names(TokensFile(path)) == {"a", "b", "c"}
