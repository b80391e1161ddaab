"""Who may do what, operation by operation."""

from typing import Any

import pytest
from tests.integration.api.door import MANAGER, READER, SUBMITTER, TOKEN, Door, check_error

from queue_operator.api.operation import ANYBODY, Operation
from queue_operator.api.routes import OPERATIONS
from queue_operator.testing.clauses import proves

BODIES: dict[str, Any] = {
    "submitJob": {"type": "t", "payload": 1},
    "submitBatch": {"jobs": [{"type": "t", "payload": 1}]},
    "searchJobs": {},
    "searchFailures": {},
    "cancelJobs": {"job_ids": ["none"]},
    "retryJobs": {"job_ids": ["none"]},
    "deleteJobs": {"job_ids": ["none"]},
    "redeliverWebhooks": {"ids": ["none"]},
    "purgeWebhooks": {"ids": ["none"]},
}
ALLOWED = {
    READER: {"get", "list"},
    SUBMITTER: {"create"},
    MANAGER: {"update", "delete"},
    TOKEN: {"get", "list", "create", "update", "delete"},
}


async def called(door: Door, operation: Operation[Any], token: str | None) -> Any:
    path = operation.path.replace("{job_id}", "none").replace("{message_id}", "none")
    return await door.call_as(token, operation.method, path, BODIES.get(operation.id))


@proves("external-api.ErrorCodes.rule.5", "external-api.Access.expect.1")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
async def test_an_operation_is_for_those_with_its_right(
    door: Door, operation: Operation[Any]
) -> None:
    for token in (None, "unknown"):
        answer = await called(door, operation, token)
        check_error(answer, 401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"] == "Bearer"
    for token, verbs in ALLOWED.items():
        answer = await called(door, operation, token)
        if operation.verb in (ANYBODY, *verbs):
            assert answer.status_code in (200, 201, 404), answer.text
        else:
            error = check_error(answer, 403, "FORBIDDEN")
            assert f"may not {operation.verb} queuejobs" in error["message"]


@proves("external-api.CancellationRequest.expect.1", "external-api.ErrorCodes.rule.6")
async def test_who_may_only_read_cannot_cancel(door: Door) -> None:
    job_id = await door.submitted()
    for method, path, body in (
        ("POST", f"/v1/jobs/{job_id}/cancel", {}),
        ("POST", "/v1/jobs/cancel", {"job_ids": [job_id]}),
        ("POST", "/v1/jobs/cancel", {"filter": {"all": True}, "dry_run": True}),
        ("POST", f"/v1/jobs/{job_id}/suspend", {}),
        ("PUT", "/v1/pauses", {}),
    ):
        check_error(await door.call_as(READER, method, path, body), 403, "FORBIDDEN")
    shown = await door.call_as(READER, "GET", f"/v1/jobs/{job_id}")
    assert shown.json()["state"] == "SCHEDULED"


@pytest.mark.parametrize(
    "header", ["Basic dGVzdHM6dGVzdHM=", "Bearer", "Bearer a b", "bearer", "x" * 10_000, "Token a"]
)
async def test_other_credentials_are_none(door: Door, header: str) -> None:
    answer = await door.http.get("/v1/stats", headers={"Authorization": header})
    check_error(answer, 401, "UNAUTHORIZED")


async def test_who_may_not_call_learns_nothing(door: Door) -> None:
    job_id = await door.submitted()
    for path in (f"/v1/jobs/{job_id}", "/v1/jobs/missing"):
        answer = await door.call_as(SUBMITTER, "GET", path)
        check_error(answer, 403, "FORBIDDEN")
        assert job_id not in answer.text
    # The body is not even read.
    answer = await door.call_as(READER, "POST", "/v1/jobs", {"type": 1})
    check_error(answer, 403, "FORBIDDEN")
