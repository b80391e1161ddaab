"""Every setting of the server, in one frozen tree, read once at the entry point.

Each field can be set by an environment variable: `QUEUE_OPERATOR_` plus the path in
capitals, levels joined by two underscores, as in `QUEUE_OPERATOR_QUEUE__LEASE_TTL_S=5`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from queue_operator.domain.addresses import check_postgres_address
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.hosts import EVERY, host_of
from queue_operator.domain.lease import DEFAULT_LEASE_TTL_S
from queue_operator.domain.limits import (
    BATCH_DEPENDENCIES,
    BATCH_JOBS,
    DEFAULT_LIMITS,
    MAX_ID_CHARACTERS,
    MAX_JSON_DEPTH,
    MAX_TAG_CHARACTERS,
    NAME_CHARACTERS,
    SPAWN_DEPTH,
    Limits,
)
from queue_operator.domain.reach import DEFAULT_PORTS, Reach
from queue_operator.observing.lines import LogFormat, LogLevel

Host = Annotated[str, AfterValidator(host_of)]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]

_HOST: Final = (
    "Address to listen on: `::` is every one of IPv6 and IPv4, `0.0.0.0` every one of IPv4."
)

KIB = 1024
MIB = 1024 * KIB
MAX_UNUSED_S: Final = 366 * 86400.0


class _Frozen(BaseModel):
    # An input may be a password.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DatabaseSettings(_Frozen):
    """Where the jobs live."""

    dsn: SecretStr = Field(
        SecretStr("postgresql://localhost/queue_operator"),
        description="Address of the Postgres database, as a URL or key=value pairs.",
    )
    pool_size: Count = Field(8, description="Connections for everything but LISTEN.")
    connect_timeout_s: Seconds = Field(5.0, description="How long one connection attempt may take.")
    statement_timeout_s: Seconds = Field(
        4.0,
        description="Limit of one statement; shorter than a lease, so that a server that "
        "hangs is noticed in time. Calls that may touch any number of jobs get a minute.",
    )
    pooler: bool = Field(
        False,
        description="Whether a pooler in transaction mode (PgBouncer) stands before Postgres.",
    )
    listen_dsn: SecretStr | None = Field(
        None,
        description="Address of Postgres itself for LISTEN, behind a pooler; without one, "
        "wake-ups between processes are polled.",
    )

    @field_validator("dsn", "listen_dsn")
    @classmethod
    def _is_postgres(cls, given: SecretStr | None) -> SecretStr | None:
        try:
            check_postgres_address("", given.get_secret_value() if given else "")
        except InvalidArgument as error:
            raise ValueError(error.reason) from None
        return given


class QueueSettings(_Frozen):
    """Leases, batches and timing of the queue."""

    lease_ttl_s: Seconds = Field(
        DEFAULT_LEASE_TTL_S, description="How long a claim lasts without a heartbeat."
    )
    cancel_timeout_s: Seconds = Field(
        30.0, description="After a forced cancel, how long a worker may take to stop."
    )
    claim_batch: Count = Field(2000, description="Most jobs one claim statement takes.")
    settle_batch: Count = Field(2000, description="Most outcomes one statement settles.")
    idle_poll_s: Seconds = Field(
        1.0, description="How often free slots are offered again when nothing woke us."
    )


class Quota(_Frozen):
    """What one namespace may use; what is not given is not limited, but for `spawn_depth`."""

    pending_jobs: Count | None = Field(
        None, description="Most jobs that wait, whatever for; children of jobs count too."
    )
    running_jobs: Count | None = Field(
        None, description="Most jobs that run at a time; those beyond it wait."
    )
    submissions_per_s: Seconds | None = Field(None, description="Jobs a second, on average.")
    submissions_burst: Count | None = Field(
        None,
        description="Jobs at once, after a rest; default: those of a second. A batch of more is "
        "let in when all of these are left, on credit: what comes next waits until it is paid.",
    )
    payload_bytes_per_s: Seconds | None = Field(
        None, description="Bytes of payload a second, on average."
    )
    payload_bytes_burst: Bytes | None = Field(
        None, description="Bytes of payload at once, after a rest; default: those of a second."
    )
    spawn_depth: Count | None = Field(
        SPAWN_DEPTH,
        description="Most generations of children below a job that came from outside, so that a "
        "job that spawns itself comes to an end; null does not limit them.",
    )


class QuotaSettings(_Frozen):
    """What namespaces may use. Nothing but `spawn_depth` is limited unless it is said here. One
    admission for all that stores jobs: REST, gRPC, resources and handlers that spawn.
    """

    default: Quota = Field(Quota(), description="For each namespace that is not named.")
    namespaces: dict[str, Quota] = Field(
        default_factory=dict,
        description="By namespace, in place of the default as a whole: "
        '`{"team-a": {"pending_jobs": 1000}}`.',
    )

    def of(self, namespace: str) -> Quota:
        return self.namespaces.get(namespace, self.default)

    @property
    def is_set(self) -> bool:
        return any(quota != Quota() for quota in (self.default, *self.namespaces.values()))


class LimitSettings(_Frozen):
    """Sizes, the same at every door."""

    payload_bytes: Bytes = Field(DEFAULT_LIMITS.payload_bytes, description="Largest payload.")
    resource_payload_bytes: Bytes = Field(
        256 * KIB, description="Largest payload in a custom resource."
    )
    result_bytes: Bytes = Field(DEFAULT_LIMITS.result_bytes, description="Largest result.")
    checkpoint_bytes: Bytes = Field(
        DEFAULT_LIMITS.checkpoint_bytes, description="Largest checkpoint of a running job."
    )
    error_message_bytes: Bytes = Field(8 * KIB, description="Longer error messages are cut.")
    stack_trace_bytes: Bytes = Field(64 * KIB, description="Longer stack traces are cut.")
    progress_message_bytes: Bytes = Field(KIB, description="Longer progress messages are cut.")
    json_depth: Count = Field(MAX_JSON_DEPTH, description="Deepest nesting of a JSON payload.")
    tags: Count = Field(
        DEFAULT_LIMITS.tags,
        description="Most tags of one job or worker. Those of a job "
        "may take 2,560 bytes together, eight counted for each beside its text.",
    )
    tag_characters: Count = Field(
        DEFAULT_LIMITS.tag_characters,
        le=MAX_TAG_CHARACTERS,
        description=f"Longest tag; at most {MAX_TAG_CHARACTERS:,}, with which one takes all that "
        "those of a job may.",
    )
    id_characters: Count = Field(
        DEFAULT_LIMITS.id_characters,
        le=MAX_ID_CHARACTERS,
        description=f"Longest id, key, type or namespace; at most {MAX_ID_CHARACTERS}, which every "
        "index of PostgreSQL takes whatever the characters.",
    )
    dependencies: Count = Field(
        DEFAULT_LIMITS.dependencies, description="Most jobs that one job waits for."
    )
    batch_jobs: Count = Field(BATCH_JOBS, description="Most jobs of one batch submission.")
    batch_dependencies: Count = Field(
        BATCH_DEPENDENCIES, description="Most jobs that those of one batch wait for, together."
    )

    def to_limits(self, callbacks: Reach | None = None) -> Limits:
        """What the pure core checks jobs against."""
        return Limits(
            payload_bytes=self.payload_bytes,
            result_bytes=self.result_bytes,
            checkpoint_bytes=self.checkpoint_bytes,
            tags=self.tags,
            tag_characters=self.tag_characters,
            id_characters=self.id_characters,
            dependencies=self.dependencies,
            callbacks=callbacks,
        )


_CLIENT_CA: Final = (
    "PEM file with authorities: callers must show a certificate of one of them (mutual TLS), "
    "beside their token."
)


def _check_files(certificate: Path | None, key: Path | None, client_ca: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise ValueError("certificate_file and key_file: give both or neither")
    if client_ca is not None and certificate is None:
        raise ValueError("client_ca_file: give certificate_file and key_file too")


class RestSettings(_Frozen):
    """The REST door."""

    host: Host = Field(EVERY, description=_HOST)
    port: Port = Field(8080, description="Port; 0 picks a free one.")
    body_bytes: Bytes = Field(
        16 * MIB,
        description="Largest request body. Up to 10 ms of each MiB the server does nothing else.",
    )
    connections: Count = Field(
        5000,
        description="Most connections that are open at a time. For one more, that which has had no "
        "request for longest is closed; where all have one, the new one is.",
    )
    streams: Count = Field(
        4000,
        description="Most streams of events that are open at a time, over REST and gRPC together. "
        "Each takes one of the connections.",
    )
    streams_per_caller: Count = Field(
        2500, description="Most streams of events that one caller has open at a time."
    )
    keep_alive_s: Seconds = Field(
        75.0,
        description="How long a connection stays open between two requests. Longer than a load "
        "balancer keeps one that it does not use, mostly 60 seconds: else some of its requests "
        "meet a connection that closes, and fail.",
    )
    certificate_file: Path | None = Field(
        None,
        description="PEM file with the server's certificate and its chain; with it the port "
        "speaks HTTPS only. Read again when it changes.",
    )
    key_file: Path | None = Field(None, description="PEM file with the certificate's key.")
    client_ca_file: Path | None = Field(None, description=_CLIENT_CA)
    runbook_url: str = Field(
        "docs/runbooks/README.md",
        description="Where you have published this file of the repository: each cause of a "
        "verdict tells its section of it.",
    )

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        _check_files(self.certificate_file, self.key_file, self.client_ca_file)
        return self


class GrpcSettings(_Frozen):
    """The gRPC port: worker sessions and the Queue."""

    host: Host = Field(EVERY, description=_HOST)
    port: Port = Field(50051, description="Port; 0 picks a free one.")
    message_bytes: Bytes = Field(
        16 * MIB,
        description="Largest message that is taken. A larger one is refused by name, up to four "
        "times that; what is larger still ends its connection's call.",
    )
    backlog_bytes: Bytes = Field(
        128 * MIB,
        description="Most outcomes, checkpoints and children of all workers together that wait "
        "until they are stored; beyond that no more is read from those who send them.",
    )
    connections: Count = Field(
        10_000,
        description="Most connections that are open at a time, of workers and clients together; "
        "those above it are closed at once. One without a call is closed after two minutes.",
    )
    calls_in_flight: Count = Field(
        1000,
        description="Most calls of the Queue that are answered at a time; those above it are "
        "refused with RESOURCE_EXHAUSTED, to be repeated. Worker sessions and streams of jobs "
        "do not count: they last.",
    )
    certificate_file: Path | None = Field(
        None,
        description="PEM file with the server's certificate and its chain; with it the port "
        "speaks TLS only. Read again when it changes.",
    )
    key_file: Path | None = Field(None, description="PEM file with the certificate's key.")
    client_ca_file: Path | None = Field(None, description=_CLIENT_CA)
    keepalive_s: Seconds = Field(
        3.75,
        description="A connection that is silent for so long is asked whether it lives; one "
        "that does not answer within a third of that is closed. Workers ask after 3.4 seconds, "
        "and where this is longer the server need not.",
    )

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        _check_files(self.certificate_file, self.key_file, self.client_ca_file)
        return self


class MetricsSettings(_Frozen):
    """The Prometheus endpoint."""

    host: Host = Field(EVERY, description=_HOST)
    port: Port = Field(9090, description="Port; 0 picks a free one.")
    depth_interval_s: Seconds = Field(5.0, le=3600, description="How often depths are read again.")
    leader_s: Seconds = Field(
        6.0,
        ge=0.1,
        le=3600,
        description="How long the replica that shows the figures about the stored jobs may be "
        "silent, before another one shows them. It says three times as often that it is there.",
    )
    linger_s: float = Field(
        16.0,
        ge=0,
        le=600,
        description="How long the replica that shows them waits at most, when it is told to end, "
        "to be scraped once more by each who does: longer than two scrapes are apart. The other "
        "parts may take 42 seconds to stop, and the pod has 60 for all "
        "(`terminationGracePeriodSeconds`). It does not wait where nobody scrapes it.",
    )
    unused_names_s: Seconds = Field(
        86400.0,
        le=MAX_UNUSED_S,
        description="After how long without jobs and events a namespace and type are no longer "
        "shown by name. 200 pairs are; more are shown together as type `other`.",
    )


class TracingSettings(_Frozen):
    """Traces by OpenTelemetry, to a collector that speaks OTLP over gRPC. Whatever the standard
    variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` ...) goes before.
    """

    endpoint: str = Field(
        "",
        pattern=r"^(https?://[^/?#@\s]+/?)?$",
        description="Where spans go, as in `http://collector:4317`; empty: nowhere, unless a "
        "variable of OpenTelemetry says where.",
    )
    sample_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="The part of submissions that is recorded, where the caller has not decided.",
    )
    flush_s: Seconds = Field(
        3.0, le=600, description="How long a stop waits for the collector to take what is left."
    )

    @field_validator("endpoint")
    @classmethod
    def _leads_somewhere(cls, given: str) -> str:
        """A port that is none would be found out by nobody: spans would go nowhere."""
        found = urlsplit(given)
        # `port` raises ValueError.
        if given and (not found.hostname or found.port == 0):
            raise ValueError("must name a host, and a port from 1 to 65535 or none")
        return given


_OFF: Final = "this server calls no callback URLs; whoever runs it can set webhooks.enabled"


class WebhookSettings(_Frozen):
    """Messages to the callback URLs of jobs that ended."""

    enabled: bool = Field(
        True,
        description="Whether this replica sends them. One that does not takes no job with a "
        "callback URL; what is stored already is kept, and sent when one begins to.",
    )
    allow: tuple[str, ...] = Field(
        (),
        description="Inside targets that may be told: names of hosts, ends of names, addresses "
        'and networks, as in `["hooks.tools.svc", "*.team.svc", "10.1.0.0/16"]`. Nothing inside is '
        "told otherwise.",
    )
    allow_http: bool = Field(
        False, description="Whether a callback URL may be http, which everybody on the way reads."
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        DEFAULT_PORTS, description="Ports that a callback URL may name; empty: every one."
    )
    total_s: Seconds = Field(
        15.0,
        le=120,
        description="How long one try may take, from looking the name up to the answer.",
    )
    answer_bytes: Bytes = Field(
        16 * KIB, description="So much of an answer is read; then the connection is closed."
    )
    per_receiver: Count = Field(
        8, le=1000, description="Most tries at a time towards one receiver, by each replica."
    )
    concurrency: Count = Field(128, le=10_000, description="Most tries at a time, by each replica.")
    retry_for_s: Seconds = Field(
        86400.0,
        le=30 * 86400.0,
        description="For how long a message is tried, from the first time on; then it has failed.",
    )
    keep_delivered_s: Seconds = Field(
        3600.0, description="How long messages that were delivered can be looked at."
    )
    keep_failed_s: Seconds = Field(
        30 * 86400.0, description="How long those that failed are kept, to be sent again."
    )
    secrets_dir: Path | None = Field(
        None,
        description="Folder with a file for each namespace that signs its messages, by its name. "
        "Read again when one changes.",
    )

    @field_validator("allow")
    @classmethod
    def _are_targets(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        Reach.of(given)
        return given

    def reach(self) -> Reach:
        """Where callbacks may go."""
        return Reach.of(self.allow, ports=self.ports, http=self.allow_http)

    def reach_of_new(self) -> Reach:
        """Which callback URLs are taken, at every door: none where nobody would call them."""
        return self.reach() if self.enabled else Reach.nowhere(_OFF)


class UiSettings(_Frozen):
    """The page for people."""

    enabled: bool = Field(True, description="Whether the REST port serves the page, at `/ui`.")


class HealthSettings(_Frozen):
    """Probes."""

    host: Host = Field(EVERY, description=_HOST)
    port: Port = Field(8081, description="Port; 0 picks a free one.")


class LogSettings(_Frozen):
    """What is written to standard error."""

    format: LogFormat = Field(
        LogFormat.TEXT,
        description="text: a line for people; json: one JSON object a line, with `time`, `level`, "
        "`logger`, `message`, `process`, and what is known of the job, the worker and the trace.",
    )
    level: LogLevel = Field(LogLevel.INFO, description="The lowest level that is written.")


class AuthMode(StrEnum):
    KUBERNETES = "kubernetes"
    STATIC = "static"
    NONE = "none"


class AuthSettings(_Frozen):
    """Who may call."""

    mode: AuthMode = Field(
        AuthMode.KUBERNETES,
        description="kubernetes: TokenReview and SubjectAccessReview; static: the tokens "
        "below; none: everybody (development only).",
    )
    audience: str = Field("queue-operator", description="Audience a token must be made for.")
    outage_s: float = Field(
        600.0,
        ge=0,
        le=3600,
        description="Kubernetes mode: how long after its last answer in favour of a caller that "
        "answer counts while the API server is away. A token or right that is taken away "
        "meanwhile counts for as long; with 0 all callers get 503 until the API server is back.",
    )
    tokens: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Static mode: token by caller name; whoever has one is an administrator.",
    )
    tokens_file: Path | None = Field(
        None,
        description="Static mode: YAML or JSON file with more tokens, their scopes and "
        "namespaces. Read again when it changes.",
    )


class ControllerSettings(_Frozen):
    """The kopf operator."""

    enabled: bool = Field(True, description="Whether custom resources are served.")
    namespaces: tuple[str, ...] = Field(
        (), description="Namespaces to watch; empty: the whole cluster."
    )
    status_writes_per_s: Seconds = Field(300.0, description="Most status writes a second.")
    intake_batch: Count = Field(500, description="Most resources taken in by one transaction.")
    intake_window_s: Seconds = Field(0.02, description="How long a batch may fill up.")
    resync_s: Seconds = Field(60.0, description="How often resources and jobs are compared.")
    events: bool = Field(
        True,
        description="Whether what somebody would act on (a refusal, a lost worker, a failure for "
        "good, a cancellation) is also told as a Kubernetes Event of the QueueJob.",
    )
    hung_after_s: Seconds = Field(
        60.0,
        description="A controller that shows no sign of life for so long is killed and started "
        "again. REST and gRPC go on meanwhile.",
    )


class Settings(BaseSettings):
    """The whole tree. Raises pydantic.ValidationError naming every faulty field at once."""

    model_config = SettingsConfigDict(
        env_prefix="QUEUE_OPERATOR_",
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    database: DatabaseSettings = DatabaseSettings()
    queue: QueueSettings = QueueSettings()
    quotas: QuotaSettings = QuotaSettings()
    limits: LimitSettings = LimitSettings()
    rest: RestSettings = RestSettings()
    grpc: GrpcSettings = GrpcSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    webhooks: WebhookSettings = WebhookSettings()
    health: HealthSettings = HealthSettings()
    ui: UiSettings = UiSettings()
    logs: LogSettings = LogSettings()
    auth: AuthSettings = AuthSettings()
    controller: ControllerSettings = ControllerSettings()
    replica: str = Field(
        "",
        max_length=NAME_CHARACTERS,
        description="Name of this replica; default: host name and pid.",
    )

    def to_limits(self) -> Limits:
        """What jobs are checked against, at every door."""
        return self.limits.to_limits(self.webhooks.reach_of_new())
