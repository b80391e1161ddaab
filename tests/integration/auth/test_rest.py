"""The REST door with tokens of a real cluster."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.auth.tenant import AUDIENCE, VERBS, Tenant

from queue_operator.api.app import create_app
from queue_operator.api.operation import ANYBODY
from queue_operator.api.routes import OPERATIONS
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.queue.service import QueueService
from queue_operator.settings import AuthMode, AuthSettings, RestSettings, Settings
from queue_operator.testing.clauses import proves

JOB = {"type": "t", "payload": 1}


@pytest.fixture
async def http(kubeconfig: str, postgres_admin_dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    name = f"auth_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    dsn = psycopg.conninfo.make_conninfo(postgres_admin_dsn, dbname=name)
    await migrate(dsn)
    settings = Settings(
        auth=AuthSettings(mode=AuthMode.KUBERNETES, audience=AUDIENCE),
        rest=RestSettings(host="127.0.0.1", port=0),
    )
    queue = QueueService(await PostgresBackend.open(dsn))
    app = create_app(queue, *build(settings.auth, kubeconfig), settings)
    server = RestServer(app, settings.rest)
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.stop()
    await queue.close()
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def test_a_service_account_works_in_its_own_namespace(
    http: httpx.AsyncClient, tenant: Tenant
) -> None:
    http.headers["Authorization"] = f"Bearer {tenant.token()}"
    submitted = await http.post("/v1/jobs", json=JOB)
    assert submitted.status_code == 201, submitted.text
    job_id = submitted.json()["job_id"]
    shown = await http.get(f"/v1/jobs/{job_id}")
    assert shown.json()["namespace"] == tenant.namespace


@proves("external-api.ErrorCodes.rule.6")
async def test_rights_end_where_the_role_ends(http: httpx.AsyncClient, tenant: Tenant) -> None:
    http.headers["Authorization"] = f"Bearer {tenant.token()}"
    job_id = (await http.post("/v1/jobs", json=JOB)).json()["job_id"]
    refused: list[tuple[str, str, Any]] = [
        ("POST", "/v1/jobs?namespace=default", JOB),
        ("GET", f"/v1/jobs/{job_id}?namespace=default", None),
        ("POST", f"/v1/jobs/{job_id}/cancel", {}),
        ("GET", "/v1/stats", None),
    ]
    for method, path, body in refused:
        answer = await http.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), path
        assert "may not" in answer.json()["message"]


@proves(
    "external-api.JobSubmission.expect.3",
    "external-api.JobQuery.expect.1",
    "external-api.CancellationRequest.expect.1",
    "external-api.JobSearch.expect.4",
    "external-api.Access.expect.2",
)
@pytest.mark.parametrize("verb", VERBS)
async def test_each_operation_needs_its_verb(
    http: httpx.AsyncClient, tenant: Tenant, verb: str
) -> None:
    http.headers["Authorization"] = f"Bearer {tenant.token(account=verb)}"
    bodies: dict[str, Any] = {
        "submitJob": JOB,
        "submitBatch": {"jobs": [JOB]},
        **{name: {"job_ids": ["none"]} for name in ("cancelJobs", "retryJobs", "deleteJobs")},
        **{name: {"ids": ["none"]} for name in ("redeliverWebhooks", "purgeWebhooks")},
    }
    for operation in OPERATIONS:
        if operation.streams:
            # They do not end.
            continue
        path = operation.path.format(job_id="none", message_id="none")
        answer = await http.request(operation.method, path, json=bodies.get(operation.id, {}))
        assert (answer.status_code == 403) is (operation.verb not in (verb, ANYBODY)), operation.id
        assert answer.status_code in (200, 201, 403, 404), answer.text


@proves("external-api.Access.expect.2")
async def test_a_filter_needs_the_right_to_list(http: httpx.AsyncClient, tenant: Tenant) -> None:
    """What it would change tells what there is."""
    http.headers["Authorization"] = f"Bearer {tenant.token(account='update')}"
    body = {"filter": {"types": ["t"]}, "dry_run": True}
    answer = await http.post("/v1/jobs/cancel", json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "list" in answer.json()["message"]


async def test_a_token_for_somebody_else_is_refused(
    http: httpx.AsyncClient, tenant: Tenant
) -> None:
    http.headers["Authorization"] = f"Bearer {tenant.token(audience='somebody-else')}"
    answer = await http.post("/v1/jobs", json=JOB)
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
