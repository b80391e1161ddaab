"""TokenReview and SubjectAccessReview of a real API server."""

from collections.abc import Iterator

import pytest
from kubernetes import client
from tests.integration.auth.tenant import API_AUDIENCE, AUDIENCE, Tenant, administrator

from queue_operator.auth.factory import build
from queue_operator.auth.kubernetes import (
    TOKEN_TTL_S,
    KubernetesAuthenticator,
    KubernetesAuthorizer,
    KubernetesReviews,
    connect,
)
from queue_operator.auth.protocol import QUEUE_JOBS, QUEUE_JOBS_STATUS, Identity
from queue_operator.domain.errors import Forbidden, Unauthenticated, Unavailable
from queue_operator.settings import AuthMode, AuthSettings


@pytest.fixture(scope="module")
def reviews(kubeconfig: str) -> Iterator[KubernetesReviews]:
    connected = connect(kubeconfig)
    yield connected
    connected.close()


async def test_a_service_account_is_named_with_its_namespace(
    reviews: KubernetesReviews, tenant: Tenant
) -> None:
    identity = await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(tenant.token())
    assert identity.name == f"system:serviceaccount:{tenant.namespace}:caller"
    assert identity.namespace == tenant.namespace
    assert "system:serviceaccounts" in identity.groups
    assert (identity.pod_name, identity.pod_uid, identity.admin) == ("", "", False)


async def test_a_pod_bound_token_names_the_pod(reviews: KubernetesReviews, tenant: Tenant) -> None:
    pod = tenant.pod("worker-1")
    identity = await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(tenant.token(pod=pod))
    assert (identity.pod_name, identity.pod_uid) == ("worker-1", pod.metadata.uid)


async def test_the_token_of_a_deleted_pod_is_refused(
    reviews: KubernetesReviews, tenant: Tenant
) -> None:
    token = tenant.token(pod=tenant.pod("worker-2"))
    tenant.delete_pod("worker-2")

    async def ask_repeatedly() -> None:
        # The API server's own view of pods is some milliseconds old.
        for _ in range(100):
            await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(token)

    with pytest.raises(Unauthenticated, match="deleted pod"):
        await ask_repeatedly()


async def test_a_token_is_not_reviewed_again_while_its_answer_is_kept(
    kubeconfig: str, tenant: Tenant
) -> None:
    now = 0.0
    reviews = connect(kubeconfig)
    authenticator = KubernetesAuthenticator(reviews, AUDIENCE, lambda: now)
    token = tenant.token()
    identity = await authenticator.authenticate(token)
    # Without its threads it cannot ask any more.
    reviews.close()
    now = TOKEN_TTL_S - 0.1
    assert await authenticator.authenticate(token) == identity
    now = TOKEN_TTL_S
    with pytest.raises(RuntimeError):
        await authenticator.authenticate(token)


@pytest.mark.parametrize("token", [None, "", "nonsense", "a.b.c", "x" * 20_000])
async def test_what_is_no_token_is_refused(reviews: KubernetesReviews, token: str | None) -> None:
    with pytest.raises(Unauthenticated):
        await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(token)


async def test_a_token_for_another_audience_is_refused(
    reviews: KubernetesReviews, tenant: Tenant
) -> None:
    with pytest.raises(Unauthenticated, match="not made for the audience 'queue-operator'"):
        await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(
            tenant.token(audience="somebody-else")
        )


async def test_rbac_decides(kubeconfig: str, tenant: Tenant) -> None:
    settings = AuthSettings(mode=AuthMode.KUBERNETES, audience=AUDIENCE)
    authenticator, authorizer = build(settings, kubeconfig)
    caller = await authenticator.authenticate(tenant.token())
    await authorizer.authorize(caller, "create", QUEUE_JOBS, tenant.namespace)
    await authorizer.authorize(caller, "get", QUEUE_JOBS, tenant.namespace)
    for verb, resource, namespace in [
        ("delete", QUEUE_JOBS, tenant.namespace),
        ("update", QUEUE_JOBS_STATUS, tenant.namespace),
        ("create", QUEUE_JOBS, "default"),
    ]:
        with pytest.raises(Forbidden, match=f"may not {verb} {resource} in namespace"):
            await authorizer.authorize(caller, verb, resource, namespace)


async def test_an_operator_without_the_right_to_review_says_which_role_it_needs(
    kubeconfig: str, tenant: Tenant
) -> None:
    settings = administrator(kubeconfig)
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {tenant.token(audience=API_AUDIENCE)}"}
    reviews = KubernetesReviews(client.ApiClient(settings))
    with pytest.raises(Unavailable, match="system:auth-delegator"):
        await KubernetesAuthenticator(reviews, AUDIENCE).authenticate(tenant.token())
    with pytest.raises(Unavailable, match="system:auth-delegator"):
        await KubernetesAuthorizer(reviews).authorize(
            Identity(name="x", namespace="a"), "get", QUEUE_JOBS, "a"
        )
    reviews.close()
