"""What can go wrong in the pipeline, beside the database being away."""

from typing import ClassVar

from queue_operator.domain.errors import QueueError

# How a line of a Java stack trace starts that names an exception.
_CAUSES = ("Caused by: ", ": ")


class PipelineError(QueueError):
    """Base of the pipeline's own errors."""

    code: ClassVar[str] = "PIPELINE_ERROR"


class JavaMissing(PipelineError):
    """Spark runs on a Java virtual machine and there is none."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or later and no `java` was found: install it "
            "(Debian, Ubuntu: `apt-get update && apt-get install openjdk-17-jre-headless`) or set "
            "JAVA_HOME"
        )


class NoAccount(PipelineError):
    """Spark asks the system what its user is called, and gets no answer."""

    def __init__(self, uid: int) -> None:
        super().__init__(
            f"Spark needs the name of its user, and user id {uid} has no line in /etc/passwd: run "
            "the pipeline under an id that has one, or add the line "
            f"`spark:x:{uid}:0::/tmp:/bin/sh` to /etc/passwd, in a container to that of its image"
        )


class NoCacheFolder(PipelineError):
    """What is fetched once has no place to be kept."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the pipeline keeps Spark's driver for Postgres in a folder, and {reason}: set "
            "XDG_CACHE_HOME to a folder that this user can write"
        )


class DriverMissing(PipelineError):
    """The PostgreSQL JDBC driver is not in the cache and could not be fetched."""


class PipelineBusy(PipelineError):
    """Another run reads the same events into the same lake."""

    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "another pipeline run on this database and lake has not ended: wait for it, or end it"
        )


class NotMigrated(PipelineError):
    """The database has no event log."""

    def __init__(self) -> None:
        super().__init__(
            "the database has no table queue_operator.job_event: name the operator's database, "
            "and run `queue-operator migrate` on it first"
        )


class DatabaseRefused(PipelineError):
    """Postgres answered, and did not do what it was asked."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"Postgres refused: {said}; nothing was counted, and the next run starts from the same "
            "place; the rights that the pipeline needs are in docs/guides/pipeline.md"
        )


class SparkFailed(PipelineError):
    """Something inside Spark went wrong; the whole of its report is the cause."""

    retryable = True

    def __init__(self, report: str) -> None:
        lines = report.splitlines() or ["no reason given"]
        causes = [line for line in lines if line.startswith(_CAUSES)]
        reason = causes[-1].partition(": ")[2] if causes else lines[0]
        super().__init__(
            f"Spark failed: {reason.strip()}; nothing was counted, and the next run starts from "
            "the same place"
        )


class EventsTooNew(PipelineError):
    """The event log was written by a later version of the product."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"job_event holds rows of schema version {found} and this pipeline knows up to "
            f"{known}: upgrade the package queue-operator where the pipeline runs"
        )
