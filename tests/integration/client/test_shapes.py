"""The client knows every operation and every field of the server's document, and no others."""

import inspect
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from tests.integration.client.stage import Stage

from queue_operator.client import QueueClient, events, messages, models, requests

METHODS = {
    "submitJob": "submit",
    "submitBatch": "submit_batch",
    "getJob": "get",
    "explainJob": "explain",
    "getFailure": "failure",
    "getLog": "log",
    "cancelJob": "cancel",
    "suspendJob": "suspend",
    "resumeJob": "resume_job",
    "retryJob": "retry",
    "deleteJob": "delete",
    "searchJobs": "search",
    # The same with the filters in the address, for those without a client.
    "listJobs": "search",
    "cancelJobs": "cancel_jobs",
    "retryJobs": "retry_jobs",
    "deleteJobs": "delete_jobs",
    "searchFailures": "search_failures",
    "getStats": "stats",
    "listPauses": "pauses",
    "pause": "pause",
    "resume": "resume",
    "getVerdict": "verdict",
    "listWorkers": "workers",
    "listWaiting": "waiting",
    "listFailing": "failing",
    "getSeries": "series",
    "getAccess": "access",
    "listWebhooks": "webhooks",
    "getWebhook": "webhook",
    "redeliverWebhooks": "redeliver_webhooks",
    "purgeWebhooks": "purge_webhooks",
    "followJob": "watch",
    "followJobs": "watch",
}
SENT = {
    "Submission": "JobSubmission",
    "Backoff": "BackoffConfig",
    "JobFilter": "JobFilter",
    "JobSearch": "JobSearch",
    "FailureFilter": "FailureFilter",
    "FailureSearch": "FailureSearch",
    "TimeRange": "TimeRange",
    "Pagination": "Pagination",
}


@pytest.fixture(scope="module")
def document(server: Stage) -> Any:
    return httpx.get(f"{server.url}/v1/openapi.json", verify=False).json()  # noqa: S501


def received() -> Iterator[tuple[str, type[BaseModel]]]:
    for module in models, messages:
        for name, model in inspect.getmembers(module, inspect.isclass):
            is_ours = model.__module__ == module.__name__
            is_answer = is_ours and model not in (models.Received, models.BulkResult)
            if is_answer and issubclass(model, BaseModel):
                yield name, model


def test_each_operation_has_a_method(document: Any) -> None:
    operations = {
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    assert operations == set(METHODS)
    for name in METHODS.values():
        assert callable(getattr(QueueClient, name))


def test_each_field_of_an_answer_is_known(document: Any) -> None:
    schemas = document["components"]["schemas"]
    fields = {name: set(model.model_fields) for name, model in received()}
    assert fields == {name: set(schemas[name]["properties"]) for name in fields}
    assert len(fields) > 25


@pytest.mark.parametrize("name", SENT)
def test_each_field_of_a_request_can_be_sent(document: Any, name: str) -> None:
    known = {
        field.replace("payload_bytes", "payload_base64")
        for field in getattr(requests, name).model_fields
    }
    assert known == set(document["components"]["schemas"][SENT[name]]["properties"])


def test_every_answer_has_a_model(document: Any) -> None:
    answers = {
        content["schema"]["$ref"].rpartition("/")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        for response in operation["responses"].values()
        for content in response.get("content", {}).values()
        # A stream is text; what its events hold has a test of its own.
        if "$ref" in content["schema"]
    }
    assert answers <= {name for name, _ in received()}


def test_each_field_of_an_event_is_known(document: Any) -> None:
    # Its position is the id of what the server sends, and not in it.
    known = set(events.JobEvent.model_fields) - {"position"}
    assert known == set(document["components"]["schemas"]["JobEvent"]["properties"])
