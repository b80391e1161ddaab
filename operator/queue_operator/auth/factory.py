"""Chooses who vouches for callers."""

import logging
from typing import assert_never

from queue_operator.auth.kubernetes import KubernetesAuthenticator, KubernetesAuthorizer, connect
from queue_operator.auth.open import AdministratorsOnly, OpenAuthenticator
from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.auth.scopes import ScopeAuthorizer
from queue_operator.auth.static import StaticAuthenticator
from queue_operator.auth.tokens_file import TokensFile
from queue_operator.settings import AuthMode, AuthSettings

log = logging.getLogger(__name__)


def build(
    settings: AuthSettings, kubeconfig: str | None = None
) -> tuple[Authenticator, Authorizer]:
    """The pair for `settings.mode`.

    In Kubernetes mode the cluster is that of `kubeconfig`, else the pod's, else the
    default kubeconfig's. Raises Unavailable when there is none, InvalidArgument for
    unusable static tokens.
    """
    match settings.mode:
        case AuthMode.KUBERNETES:
            reviews = connect(kubeconfig)
            return (
                KubernetesAuthenticator(reviews, settings.audience, outage_s=settings.outage_s),
                KubernetesAuthorizer(reviews, outage_s=settings.outage_s),
            )
        case AuthMode.STATIC:
            named = settings.tokens_file
            file = None if named is None else TokensFile(named)
            return StaticAuthenticator(settings.tokens, file), ScopeAuthorizer()
        case AuthMode.NONE:
            log.warning("auth.mode is none: everybody who reaches the ports may do everything")
            return OpenAuthenticator(), AdministratorsOnly()
        case _:
            assert_never(settings.mode)
