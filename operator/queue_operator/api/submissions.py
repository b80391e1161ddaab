"""From the bytes of a submission to a job."""

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from pydantic import ValidationError

from queue_operator.api import documents
from queue_operator.api.faults import every_fault
from queue_operator.api.schemas import BackoffConfig, JobSubmission
from queue_operator.domain import tags
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy, backoff_of
from queue_operator.domain.traces import NO_TRACE, Trace
from queue_operator.domain.validation import Limits, check_job

UNRESOLVED_ATTEMPTS: Final = 0
"""What a job carries that left its attempts to the handler's registration."""

_ESCAPE_GROWTH: Final = 6
# The most is a thousand ids of jobs to wait for.
_OPTIONS_BYTES: Final = 1152 * 1024
_WHITESPACE: Final = (b" ", b"\n", b"\t", b"\r")


class SubmissionRules(Protocol):
    """What it takes to read one."""

    @property
    def json_depth(self) -> int: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def new_id(self) -> Callable[[], str]: ...


def submission_bytes(payload_bytes: int) -> int:
    """The most one submission can take on the wire: each byte of the payload written as
    a six character escape, and the options.
    """
    return payload_bytes * _ESCAPE_GROWTH + _OPTIONS_BYTES


def _too_large_to_parse(body: bytes, payload_bytes: int) -> bool:
    """Whether the payload must be over its limit, told without parsing: a few bytes of JSON
    can become a large object. Base64 takes four bytes for three.
    """
    most = payload_bytes * 4 // 3 + _OPTIONS_BYTES
    if len(body) <= most:
        return False
    shorter = sum(body.count(space) for space in _WHITESPACE)
    shorter += (_ESCAPE_GROWTH - 1) * body.count(b"\\")
    return len(body) - shorter > most


def job_from(body: bytes, namespace: str, rules: SubmissionRules, trace: Trace = NO_TRACE) -> Job:
    """The job of one submission. Raises InvalidBody with every fault, or PayloadTooLarge."""
    return Reader(namespace, rules, partial(check_job, limits=rules.limits), trace).read(body)


class Reader:
    """Reads the submissions of one request. `check` raises what is wrong with a job, `trace` is the
    span that they belong to.
    """

    def __init__(
        self,
        namespace: str,
        rules: SubmissionRules,
        check: Callable[[Job], None],
        trace: Trace = NO_TRACE,
    ) -> None:
        self._namespace = namespace
        self._new_id = rules.new_id
        self._payload_bytes = rules.limits.payload_bytes
        self._json_depth = rules.json_depth
        self.check = check
        self._trace: dict[str, Any] = {}
        if trace.parent:
            self._trace = {"traceparent": trace.parent, "tracestate": trace.state}
        self._last_tags: Mapping[str, str] = {}
        self._last_labels: frozenset[str] = frozenset()

    def read(self, body: bytes) -> Job:
        """A job that is right. Raises InvalidBody with every fault, or PayloadTooLarge."""
        limit = self._payload_bytes
        if _too_large_to_parse(body, limit):
            raise PayloadTooLarge("payload", len(body), limit)
        try:
            job = self.job(_validate(body))
            self.check(job)
        except (ValidationError, InvalidArgument) as error:
            raise every_fault(body, error, self) from None
        return job

    def parts(self, submission: JobSubmission) -> list[InvalidArgument]:
        """What is wrong with the parts of which a job is made."""
        faults = []
        if submission.delay is not None and submission.scheduled_at is not None:
            reason = "give either delay or scheduled_at, not both"
            faults += [InvalidArgument(field, reason) for field in ("delay", "scheduled_at")]
        for make in (
            lambda: _payload(submission, self._json_depth),
            lambda: self._labels(submission.tags),
            lambda: _backoff(submission.backoff),
        ):
            try:
                make()
            except InvalidArgument as error:
                faults.append(error)
        return faults

    def job(self, given: JobSubmission) -> Job:
        """The job of a submission whose parts are right."""
        payload, content_type = _payload(given, self._json_depth)
        return Job(
            id=self._new_id() if given.job_id is None else given.job_id,
            type=given.type,
            payload=payload,
            content_type=content_type,
            namespace=self._namespace,
            tags=self._labels(given.tags),
            priority=given.priority,
            scheduled_at=given.scheduled_at,
            max_attempts=given.max_attempts or UNRESOLVED_ATTEMPTS,
            backoff=_backoff_of(given),
            correlation_id=given.correlation_id or "",
            **_options(given),
            **self._trace,
        )

    def _labels(self, given: Mapping[str, str] | None) -> frozenset[str]:
        given = given or {}
        if given != self._last_tags:
            self._last_labels = tags.from_map(given)
            self._last_tags = given
        return self._last_labels


_validate: Final = JobSubmission.__pydantic_validator__.validate_json
"""What `model_validate_json` calls, which looks at options first that nobody gives here."""


def _options(given: JobSubmission) -> dict[str, Any]:
    """What most submissions leave out."""
    options: dict[str, Any] = {}
    if given.delay is not None:
        options["delay_s"] = given.delay.total_seconds()
    if given.timeout is not None:
        options["timeout_s"] = given.timeout.total_seconds()
    if given.idempotency_key is not None:
        options["idempotency_key"] = given.idempotency_key
    if given.depends_on:
        options["depends_on"] = tuple(given.depends_on)
        options["dependency_mode"] = given.dependency_type
    if given.suspended:
        options["suspended"] = True
    if given.callback_url is not None:
        options["callback_url"] = given.callback_url
    return options


def _payload(given: JobSubmission, max_depth: int) -> tuple[bytes, str]:
    as_json = "payload" in given.model_fields_set
    if as_json == (given.payload_base64 is not None):
        raise InvalidArgument("payload", "give exactly one of payload and payload_base64")
    if as_json:
        return documents.encode("payload", given.payload, max_depth), documents.JSON_TYPE
    try:
        raw = base64.b64decode(given.payload_base64 or "", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("payload_base64", "is not base64") from None
    return raw, documents.BYTES_TYPE


def _backoff_of(given: JobSubmission) -> Backoff | None:
    """The first claim resolves both or none: who says how often says how fast, if only as usual."""
    if given.backoff is None and given.max_attempts is not None:
        return DEFAULT_BACKOFF
    return _backoff(given.backoff)


def _backoff(given: BackoffConfig | None) -> Backoff | None:
    if given is None:
        return None
    custom = given.strategy is BackoffStrategy.CUSTOM
    if custom != (given.delays is not None):
        raise InvalidArgument(
            "backoff.delays", "must be given for the strategy CUSTOM, and for no other"
        )
    initial, longest = given.initial_delay, given.max_delay
    return backoff_of(
        given.strategy,
        initial_delay_s=None if initial is None else initial.total_seconds(),
        max_delay_s=None if longest is None else longest.total_seconds(),
        multiplier=given.multiplier,
        delays_s=tuple(delay.total_seconds() for delay in given.delays or ()),
    )
