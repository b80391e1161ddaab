"""Releases on a real cluster: rights, upgrades, and what stays when a release goes.

The releases run no pods (replicas: 0); what they run is tested end to end elsewhere.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.integration.charts.conftest import CHARTS, Namespace

Values = dict[str, Any]

PASSWORD = "p@:/%#?&\\ \"'é$1"
ROLE = "chart o'test"
CHART = str(CHARTS / "queue-operator")
RELEASE = "queue-operator"
QUIET: Values = {"replicas": 0, "crds": {"install": False}}
DATABASE: Values = {"database": {"host": "db", "password": PASSWORD}}
GROUP = "queueoperator.dev"
EXAMPLE = CHARTS.parent / "examples" / "01-hello"


@pytest.fixture
def release(namespace: Namespace) -> Iterator[Namespace]:
    """A namespace in which a release of that name may be installed."""
    yield namespace
    namespace.helm("uninstall", RELEASE, "--ignore-not-found")


def allowed(namespace: Namespace, verb: str, resource: str, at: str = "", name: str = "") -> bool:
    """Whether the operator may do it: in its own namespace, in `at`, or everywhere (`*`).

    `resource` is written group/resource or group/resource/subresource.
    """
    group, kind, subresource = [*resource.split("/"), ""][:3]
    attributes = {
        "namespace": {"": namespace.name, "*": ""}.get(at, at),
        "verb": verb,
        "group": group,
        "resource": kind,
        "subresource": subresource,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace.name}:{RELEASE}",
            "resourceAttributes": attributes,
        },
    }
    answer = namespace.kubectl("create", "--filename=-", "--output=json", text=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])


def secrets(namespace: Namespace) -> dict[str, str]:
    """The resource version of each Secret of the release itself."""
    found = namespace.get("secrets", "--selector=app.kubernetes.io/part-of=queue-operator")
    return {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in found["items"]}


def test_upgrades_without_change_leave_secrets_alone(release: Namespace) -> None:
    values = {**QUIET, **DATABASE, "auth": {"mode": "static", "tokens": {"ci": PASSWORD}}}
    release.helm("install", RELEASE, CHART, values=values)
    before = secrets(release)
    assert set(before) == {"queue-operator-database", "queue-operator-tokens"}
    for _ in range(3):
        release.helm("upgrade", RELEASE, CHART, values=values)
    assert secrets(release) == before


def test_an_upgrade_may_keep_the_values_of_a_chart_that_knew_fewer(
    release: Namespace, tmp_path: Path
) -> None:
    earlier = tmp_path / "queue-operator"
    shutil.copytree(CHARTS / "queue-operator", earlier)
    (earlier / "values.yaml").write_text("{}\n")
    release.helm("install", RELEASE, str(earlier), values={**QUIET, **DATABASE})
    release.helm("upgrade", RELEASE, CHART, "--reuse-values")
    kept = release.helm("get", "manifest", RELEASE)
    release.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values")
    assert release.helm("get", "manifest", RELEASE) == kept


def test_a_cluster_wide_release_has_its_rights_and_no_more(release: Namespace) -> None:
    release.helm("install", RELEASE, CHART, values={**QUIET, **DATABASE})
    for verb in ("get", "list", "watch"):
        assert allowed(release, verb, f"{GROUP}/queuejobs", "*")
    for verb in ("create", "patch", "update", "delete", "deletecollection"):
        assert not allowed(release, verb, f"{GROUP}/queuejobs", "*")
    for verb in ("get", "list", "watch", "create", "delete"):
        assert allowed(release, verb, f"{GROUP}/queueworkers", "*")
    for kind in ("queuejobs", "queueworkers"):
        assert allowed(release, "patch", f"{GROUP}/{kind}/status", "*")
    assert allowed(release, "create", "authentication.k8s.io/tokenreviews", "*")
    assert allowed(release, "create", "authorization.k8s.io/subjectaccessreviews", "*")
    assert allowed(release, "get", "/namespaces", "kube-system", name="kube-system")
    definitions = "apiextensions.k8s.io/customresourcedefinitions"
    assert allowed(release, "get", definitions, "*", name=f"queuejobs.{GROUP}")
    assert not allowed(release, "get", definitions, "*", name="other.example.com")
    leases = "coordination.k8s.io/leases"
    assert allowed(release, "create", leases, "*")
    for verb in ("get", "update"):
        assert allowed(release, verb, leases, "*", name="queueoperator.dev")
        assert not allowed(release, verb, leases, "*", name="kube-scheduler")
    assert allowed(release, "create", "/events", "*")
    assert not allowed(release, "get", "/events")
    assert not allowed(release, "get", "/secrets")
    assert not allowed(release, "get", "/pods")
    assert not allowed(release, "get", "/namespaces", "default", name="default")


def test_a_namespaced_release_has_rights_at_home_only(release: Namespace) -> None:
    rbac = {"clusterWide": False, "clusterRights": False, "aggregate": False}
    release.helm("install", RELEASE, CHART, values={**QUIET, **DATABASE, "rbac": rbac})
    assert allowed(release, "watch", f"{GROUP}/queuejobs")
    assert allowed(release, "create", f"{GROUP}/queueworkers")
    assert not allowed(release, "watch", f"{GROUP}/queuejobs", "default")
    assert not allowed(release, "watch", f"{GROUP}/queuejobs", "*")
    assert not allowed(release, "create", "authentication.k8s.io/tokenreviews", "*")


def test_any_password_opens_a_real_database(release: Namespace) -> None:
    admin_dsn = release.cluster.postgres_admin_dsn
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        role = sql.Identifier(ROLE)
        admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(PASSWORD))
        )
        try:
            database = {
                "host": admin.info.host,
                "port": admin.info.port,
                "name": admin.info.dbname,
                "user": ROLE,
                "password": PASSWORD,
            }
            release.helm("install", RELEASE, CHART, values={**QUIET, "database": database})
            data = release.get("secret/queue-operator-database")["data"]
            with psycopg.connect(base64.b64decode(data["dsn"]).decode()) as connection:
                assert connection.execute("SELECT current_user").fetchone() == (ROLE,)
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def own_chart(tmp_path: Path, release: Namespace) -> Iterator[Path]:
    """The chart with its definitions in an API group that only this test uses.

    So the test can uninstall it without touching the real definitions of the cluster.
    """
    chart = tmp_path / "queue-operator"
    shutil.copytree(CHARTS / "queue-operator", chart)
    group = f"{release.name}.{GROUP}"
    for path in (chart / "files" / "crds").glob("*.yaml"):
        path.write_text(path.read_text().replace(GROUP, group))
    yield chart
    for plural in ("queuejobs", "queueworkers"):
        release.kubectl("delete", "crd", f"{plural}.{group}", "--ignore-not-found")
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        release.kubectl("delete", kind, f"queuejobs-payload.{group}", "--ignore-not-found")


def test_definitions_are_upgraded_and_outlive_the_release(
    release: Namespace, own_chart: Path
) -> None:
    group = f"{release.name}.{GROUP}"
    definition = own_chart / "files" / "crds" / "queuejobs.yaml"
    newest = definition.read_text()
    definition.write_text(newest.replace("correlationId", "formerName"))
    values = {**DATABASE, "replicas": 0}
    release.helm("install", RELEASE, str(own_chart), values=values)
    release.kubectl("wait", "--for=condition=Established", f"crd/queuejobs.{group}")

    job = f"""
    apiVersion: {group}/v1alpha1
    kind: QueueJob
    metadata: {{name: mine}}
    spec: {{type: hello, payload: {{name: world}}}}
    """
    release.kubectl("create", "--filename=-", text=job)
    definition.write_text(newest)
    release.helm("upgrade", RELEASE, str(own_chart), values=values)
    schema = release.get(f"crd/queuejobs.{group}")["spec"]["versions"][0]["schema"]
    fields = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "correlationId" in fields
    assert "formerName" not in fields

    release.helm("uninstall", RELEASE)
    kept = release.get(f"queuejobs.{group}/mine")
    assert kept["spec"]["payload"] == {"name": "world"}


def test_the_definitions_take_the_jobs_of_the_first_example(
    release: Namespace, own_chart: Path
) -> None:
    group = f"{release.name}.{GROUP}"
    release.helm("install", RELEASE, str(own_chart), values={**DATABASE, "replicas": 0})
    release.kubectl("wait", "--for=condition=Established", f"crd/queuejobs.{group}")
    jobs = sorted(EXAMPLE.glob("*.yaml"))
    assert len(jobs) == 6
    for path in jobs:
        text = path.read_text().replace(GROUP, group)
        create = ("create", "--dry-run=server", "--validate=strict", "--filename=-")
        assert "created" in release.kubectl(*create, text=text)
        misspelt = text.replace("  type:", "  typ:")
        assert release.try_kubectl(*create, text=misspelt).returncode != 0
