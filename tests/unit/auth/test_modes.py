"""Who gets in without a cluster, and what is said when there is none."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from queue_operator.auth.factory import build
from queue_operator.auth.open import AdministratorsOnly
from queue_operator.auth.protocol import Identity
from queue_operator.auth.static import StaticAuthenticator
from queue_operator.domain.errors import Forbidden, InvalidArgument, Unauthenticated, Unavailable
from queue_operator.settings import AuthMode, AuthSettings


def static(**tokens: str) -> AuthSettings:
    secrets = {name: SecretStr(token) for name, token in tokens.items()}
    return AuthSettings(mode=AuthMode.STATIC, tokens=secrets)


async def test_a_static_token_names_its_caller() -> None:
    authenticator, authorizer = build(static(ci="first-token", ops="second-token"))
    identity = await authenticator.authenticate("second-token")
    assert identity == Identity(name="ops", namespace="default", admin=True)
    await authorizer.authorize(identity, "delete", "queueworkers", "anywhere")


@pytest.mark.parametrize("token", [None, "", "first-toke", "first-token ", "\ud800", "ci"])
async def test_any_other_token_is_refused(token: str | None) -> None:
    authenticator, _ = build(static(ci="first-token"))
    with pytest.raises(Unauthenticated, match=r"auth\.tokens"):
        await authenticator.authenticate(token)


@pytest.mark.parametrize("tokens", [{}, {"a": ""}, {"a": "same", "b": "same"}])
def test_unusable_static_tokens_stop_the_start(tokens: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"auth\.tokens"):
        StaticAuthenticator({name: SecretStr(token) for name, token in tokens.items()})


async def test_mode_none_lets_everybody_in_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    authenticator, authorizer = build(AuthSettings(mode=AuthMode.NONE))
    assert "everybody" in caplog.text
    identity = await authenticator.authenticate(None)
    assert identity.admin
    await authorizer.authorize(identity, "create", "queuejobs", "default")


async def test_who_is_no_administrator_needs_somebody_else_to_decide() -> None:
    with pytest.raises(Forbidden, match="worker may not create queuejobs"):
        await AdministratorsOnly().authorize(
            Identity(name="worker", namespace="a"), "create", "queuejobs", "a"
        )


def test_kubernetes_mode_without_a_cluster_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="QUEUE_OPERATOR_AUTH__MODE=static"):
        build(AuthSettings(mode=AuthMode.KUBERNETES), str(tmp_path / "missing"))
