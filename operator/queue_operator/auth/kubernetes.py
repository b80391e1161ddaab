"""Callers vouched for by the cluster (TokenReview) and judged by its RBAC
(SubjectAccessReview).

The Kubernetes client blocks, so its calls run in a few threads of their own.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from queue_operator.auth.answers import Answers
from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Forbidden, QuotaExceeded, Unauthenticated, Unavailable
from queue_operator.domain.job import DEFAULT_NAMESPACE

API_GROUP: Final = "queueoperator.dev"

TOKEN_TTL_S: Final = 10.0
"""How long a token that was vouched for is not asked about again."""
ALLOWED_TTL_S: Final = 10.0
REFUSED_TTL_S: Final = 2.0
"""Refusals are kept shorter, so that a new grant works soon."""
OUTAGE_S: Final = 600.0
"""How long who was vouched for, or allowed something, still is while the API server is away, unless
the settings say otherwise.
"""

_CALL_TIMEOUT_S: Final = 5.0
_THREADS: Final = 4
_FOR_STRANGERS: Final = 4
"""Threads for tokens that were not good before: of these there are as many as somebody makes up."""
MOST_STRANGERS: Final = 256
"""Of them at a time, of all doors together; more are told to come again."""
_REPEAT_AFTER_S: Final = 1.0
_MAX_TOKEN_CHARACTERS: Final = 16_384
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"

# The client's configuration module carries no types.
_load_incluster: Callable[..., None] = config.load_incluster_config
_load_kubeconfig: Callable[..., None] = config.load_kube_config


class KubernetesReviews:
    """The two review APIs without blocking the event loop.

    A server that hangs makes few wait for its silence: whoever stands in line meanwhile is told the
    same as those in front. Strangers have a line of their own.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._unanswered_s = float("-inf")
        self._authentication = client.AuthenticationV1Api(api)
        self._authorization = client.AuthorizationV1Api(api)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes-review")
        self._for_strangers = ThreadPoolExecutor(
            _FOR_STRANGERS, thread_name_prefix="kubernetes-review-of-strangers"
        )
        self._strangers = 0

    async def stranger(self, token: str, audience: str) -> client.V1TokenReviewStatus:
        """The same of a token that was not good before. Raises QuotaExceeded, too."""
        if self._strangers >= MOST_STRANGERS:
            what = "calls whose tokens this server checks at a time"
            raise QuotaExceeded(what, self._strangers, MOST_STRANGERS, _REPEAT_AFTER_S)
        self._strangers += 1
        try:
            return await self.token(token, audience, self._for_strangers)
        finally:
            self._strangers -= 1

    async def token(
        self, token: str, audience: str, threads: ThreadPoolExecutor | None = None
    ) -> client.V1TokenReviewStatus:
        """What the API server says about `token`; raises Unavailable."""
        spec = client.V1TokenReviewSpec(token=token, audiences=[audience])
        review = client.V1TokenReview(spec=spec)
        create = self._authentication.create_token_review
        status: client.V1TokenReviewStatus = await self._call(
            create, review, "tokenreviews", threads
        )
        return status

    async def access(
        self, spec: client.V1SubjectAccessReviewSpec
    ) -> client.V1SubjectAccessReviewStatus:
        """What the API server's authorizers say; raises Unavailable."""
        review = client.V1SubjectAccessReview(spec=spec)
        create = self._authorization.create_subject_access_review
        status: client.V1SubjectAccessReviewStatus = await self._call(
            create, review, "subjectaccessreviews"
        )
        return status

    def close(self) -> None:
        """Lets the threads end; running calls are not waited for."""
        for threads in (self._threads, self._for_strangers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _call(
        self,
        create: Callable[..., Any],
        body: object,
        resource: str,
        threads: ThreadPoolExecutor | None = None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        in_line_s = time.monotonic()
        try:
            review = await loop.run_in_executor(
                threads or self._threads, self._create, create, body, in_line_s
            )
        except client.ApiException as error:
            raise Unavailable(_explain(error, resource)) from error
        except (HTTPError, OSError) as error:
            raise Unavailable(
                f"the Kubernetes API server cannot be reached to review this call: {error}"
            ) from error
        return review.status

    def _create(self, create: Callable[..., Any], body: object, in_line_s: float) -> Any:
        """In one of the threads."""
        if self._unanswered_s > in_line_s:
            raise OSError("it did not answer those who asked before")
        try:
            return create(body, _request_timeout=_CALL_TIMEOUT_S)
        except (HTTPError, OSError):
            self._unanswered_s = time.monotonic()
            raise


def _explain(error: client.ApiException, resource: str) -> str:
    if error.status in (401, 403):
        return (
            f"the operator may not create {resource}; "
            "bind its service account to the ClusterRole system:auth-delegator"
        )
    return f"the Kubernetes API server could not review this call: {error.status} {error.reason}"


def connect(kubeconfig: str | None = None) -> KubernetesReviews:
    """Reviews by the cluster this pod runs in, else by the one of the kubeconfig.

    Raises Unavailable when there is neither.
    """
    settings = client.Configuration()
    settings.retries = 1
    settings.connection_pool_maxsize = _THREADS + _FOR_STRANGERS
    try:
        _configure(settings, kubeconfig)
    except config.ConfigException as error:
        raise Unavailable(
            f"no Kubernetes cluster to ask who is calling ({error}); "
            "run in a pod, set KUBECONFIG, or set QUEUE_OPERATOR_AUTH__MODE=static"
        ) from error
    return KubernetesReviews(client.ApiClient(settings))


def _configure(settings: client.Configuration, kubeconfig: str | None) -> None:
    if kubeconfig is None:
        try:
            _load_incluster(client_configuration=settings)
        except config.ConfigException:
            pass
        else:
            return
    _load_kubeconfig(config_file=kubeconfig, client_configuration=settings)


@dataclass(frozen=True, slots=True)
class _Refused:
    """The API server does not vouch for the token."""

    reason: str


class KubernetesAuthenticator:
    """TokenReview: the token must be made for `audience`."""

    def __init__(
        self,
        reviews: KubernetesReviews,
        audience: str,
        monotonic: Callable[[], float] = time.monotonic,
        outage_s: float = OUTAGE_S,
    ) -> None:
        self._reviews = reviews
        self._audience = audience
        self._answers: Answers[bytes, Identity | _Refused] = Answers(
            lambda answer: REFUSED_TTL_S if isinstance(answer, _Refused) else TOKEN_TTL_S,
            monotonic,
            outage_s=lambda answer: 0.0 if isinstance(answer, _Refused) else outage_s,
            cheap=lambda answer: isinstance(answer, _Refused),
        )

    async def authenticate(self, token: str | None) -> Identity:
        if not token or len(token) > _MAX_TOKEN_CHARACTERS:
            raise Unauthenticated(
                "no usable bearer token; send 'Authorization: Bearer TOKEN' with a service "
                f"account token made for the audience {self._audience!r}"
            )
        # The tokens themselves are not kept in memory longer than the call.
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._answers.has_been_good(key)
        answer = await self._answers.get(key, lambda: self._review(token, known))
        if isinstance(answer, _Refused):
            raise Unauthenticated(answer.reason)
        return answer

    async def _review(self, token: str, known: bool) -> Identity | _Refused:
        look = self._reviews.token if known else self._reviews.stranger
        status = await look(token, self._audience)
        user = status.user
        if status.authenticated and user and self._audience in (status.audiences or ()):
            return _identity(user)
        return _Refused(
            "the cluster does not vouch for this token: it is expired, of another cluster, of a "
            f"deleted pod, or not made for the audience {self._audience!r}"
        )


def _identity(user: client.V1UserInfo) -> Identity:
    extra: Mapping[str, list[str]] = user.extra or {}
    name = user.username or ""
    return Identity(
        name=name,
        namespace=_namespace_of(name),
        pod_name=next(iter(extra.get(_POD_NAME, ())), ""),
        pod_uid=next(iter(extra.get(_POD_UID, ())), ""),
        uid=user.uid or "",
        groups=tuple(user.groups or ()),
        extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
    )


def _namespace_of(username: str) -> str:
    if not username.startswith(_SERVICE_ACCOUNT):
        return DEFAULT_NAMESPACE
    return username.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]


class KubernetesAuthorizer:
    """SubjectAccessReview for the caller on resources of `queueoperator.dev`."""

    def __init__(
        self,
        reviews: KubernetesReviews,
        monotonic: Callable[[], float] = time.monotonic,
        outage_s: float = OUTAGE_S,
    ) -> None:
        self._reviews = reviews
        self._answers: Answers[tuple[Identity, str, str, str], str | None] = Answers(
            lambda refusal: ALLOWED_TTL_S if refusal is None else REFUSED_TTL_S,
            monotonic,
            outage_s=lambda refusal: outage_s if refusal is None else 0.0,
        )

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        key = (identity, verb, resource, namespace)
        refusal = await self._answers.get(key, lambda: self._review(*key))
        if refusal is not None:
            raise Forbidden(refusal)

    async def _review(
        self, identity: Identity, verb: str, resource: str, namespace: str
    ) -> str | None:
        """None when allowed, else the refusal for the caller to read."""
        name, _, subresource = resource.partition("/")
        attributes = client.V1ResourceAttributes(
            group=API_GROUP,
            namespace=namespace,
            resource=name,
            subresource=subresource or None,
            verb=verb,
        )
        status = await self._reviews.access(
            client.V1SubjectAccessReviewSpec(
                user=identity.name,
                uid=identity.uid or None,
                groups=list(identity.groups),
                # Without it a token of limited scope would have all rights of its user.
                extra={key: list(values) for key, values in identity.extra},
                resource_attributes=attributes,
            )
        )
        if status.allowed:
            return None
        return (
            f"{identity.name} may not {verb} {resource} in namespace {namespace!r}; "
            f"grant it with a Role for {resource}.{API_GROUP}"
        )
