"""What the cluster says of a caller goes back to it whole, so that no restriction is lost."""

from pathlib import Path

from tests.unit.auth.apiserver import reviews_by
from tests.unit.client.scripted import Answer, serving

from queue_operator.auth.kubernetes import KubernetesAuthenticator, KubernetesAuthorizer

EXTRA = {
    "scopes.authorization.example": ["user:info", "jobs:read"],
    "authentication.kubernetes.io/pod-name": ["worker-1"],
}
USER = {"username": "someone", "uid": "u-1", "groups": ["devs", "all"], "extra": EXTRA}
VOUCHED = {
    "spec": {"token": "token"},
    "status": {"authenticated": True, "audiences": ["queue-operator"], "user": USER},
}
ALLOWED = {"spec": {}, "status": {"allowed": True}}


async def test_uid_groups_and_extra_are_reviewed_too(tmp_path: Path) -> None:
    with serving(Answer(201, VOUCHED), Answer(201, ALLOWED)) as server:
        reviews = reviews_by(server.url, tmp_path)
        caller = await KubernetesAuthenticator(reviews, "queue-operator").authenticate("token")
        await KubernetesAuthorizer(reviews).authorize(caller, "update", "queuejobs/status", "shop")
        reviews.close()
    (_, review) = server.asked
    assert review.body["spec"] == {
        "user": "someone",
        "uid": "u-1",
        "groups": ["devs", "all"],
        "extra": EXTRA,
        "resourceAttributes": {
            "group": "queueoperator.dev",
            "namespace": "shop",
            "resource": "queuejobs",
            "subresource": "status",
            "verb": "update",
        },
    }
