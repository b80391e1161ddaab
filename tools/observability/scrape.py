"""Writes the scrape configuration of a Prometheus without its operator, from the ServiceMonitors
and PodMonitors that a chart renders:

    helm template ... | python tools/observability/scrape.py > scrape.yml

The same targets get the same labels as from the Prometheus operator. `--kubeconfig` is for a
Prometheus outside of the cluster. `--target [POD=]HOST:PORT` (any number) makes those the targets
of every monitor, for one that cannot ask a cluster, as those of Debian; a pod that is not named is
called as its address.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

API_VERSIONS: Final = (
    "--api-versions=monitoring.coreos.com/v1/ServiceMonitor",
    "--api-versions=monitoring.coreos.com/v1/PodMonitor",
)
"""Helm's options without which the charts render no monitor where no cluster is asked."""
_SERVICE, _POD = "ServiceMonitor", "PodMonitor"
_ENDPOINTS: Final = {_SERVICE: "endpoints", _POD: "podMetricsEndpoints"}
_ROLES: Final = {_SERVICE: "endpointslice", _POD: "pod"}
_RELABELING: Final = {
    "sourceLabels": "source_labels",
    "targetLabel": "target_label",
    "separator": "separator",
    "regex": "regex",
    "modulus": "modulus",
    "replacement": "replacement",
    "action": "action",
}
Document = Mapping[str, Any]


def configuration(
    documents: Iterable[Document], *, kubeconfig: str = "", targets: Sequence[str] = ()
) -> dict[str, Any]:
    """What the file has; other documents than monitors are passed by."""
    monitors = [one for one in documents if one.get("kind") in _ENDPOINTS]
    scrapes = [
        _scrape(monitor, number, endpoint, kubeconfig, targets)
        for monitor in monitors
        for number, endpoint in enumerate(monitor["spec"][_ENDPOINTS[monitor["kind"]]])
    ]
    return {"scrape_configs": scrapes}


def _scrape(
    monitor: Document, number: int, endpoint: Document, kubeconfig: str, targets: Sequence[str]
) -> dict[str, Any]:
    kind, metadata = monitor["kind"], monitor["metadata"]
    namespace = metadata["namespace"]
    name = f"{kind[0].lower()}{kind[1:]}/{namespace}/{metadata['name']}/{number}"
    found: dict[str, Any] = {
        "job_name": name,
        "metrics_path": endpoint.get("path", "/metrics"),
        "scheme": endpoint.get("scheme", "http"),
        "honor_labels": endpoint.get("honorLabels", False),
    }
    for given, written in (("interval", "scrape_interval"), ("scrapeTimeout", "scrape_timeout")):
        if given in endpoint:
            found[written] = endpoint[given]
    if targets:
        labels = {"namespace": namespace, "job": metadata["name"], "endpoint": endpoint["port"]}
        found["static_configs"] = [_target(target, labels) for target in targets]
        found["relabel_configs"] = []
    else:
        found["kubernetes_sd_configs"] = [_discovery(monitor, kubeconfig)]
        selects = _service if kind == _SERVICE else _pod
        found["relabel_configs"] = list(selects(monitor, endpoint["port"]))
    found["relabel_configs"] += map(_relabeling, endpoint.get("relabelings", ()))
    if changes := endpoint.get("metricRelabelings"):
        found["metric_relabel_configs"] = list(map(_relabeling, changes))
    return found


def _target(named: str, labels: Mapping[str, str]) -> dict[str, Any]:
    pod, _, address = named.rpartition("=")
    return {"targets": [address], "labels": {**labels, "pod": pod or address}}


def _discovery(monitor: Document, kubeconfig: str) -> dict[str, Any]:
    selector = monitor["spec"].get("namespaceSelector", {})
    found: dict[str, Any] = {"role": _ROLES[monitor["kind"]]}
    if not selector.get("any"):
        names = selector.get("matchNames") or [monitor["metadata"]["namespace"]]
        found["namespaces"] = {"names": list(names)}
    if kubeconfig:
        found["kubeconfig_file"] = kubeconfig
    return found


def _service(monitor: Document, port: str) -> Iterator[dict[str, Any]]:
    """The port of the endpoints of the Services that are selected, and what they are called."""
    yield from _labelled(monitor, "service")
    yield _keep("__meta_kubernetes_endpointslice_port_name", port)
    yield {
        "source_labels": [
            "__meta_kubernetes_endpointslice_address_target_kind",
            "__meta_kubernetes_endpointslice_address_target_name",
        ],
        "regex": "Pod;(.*)",
        "target_label": "pod",
    }
    yield _copy("__meta_kubernetes_service_name", "service")
    yield _copy("__meta_kubernetes_service_name", "job")
    yield from _common(port)


def _pod(monitor: Document, port: str) -> Iterator[dict[str, Any]]:
    """The port of the pods that are selected, and what they are called."""
    yield from _labelled(monitor, "pod")
    yield _keep("__meta_kubernetes_pod_container_port_name", port)
    yield _copy("__meta_kubernetes_pod_name", "pod")
    job = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    yield {"target_label": "job", "replacement": job}
    yield from _common(port)


def _labelled(monitor: Document, what: str) -> Iterator[dict[str, Any]]:
    for label, value in monitor["spec"]["selector"]["matchLabels"].items():
        sanitized = re.sub(r"\W", "_", label, flags=re.ASCII)
        yield _keep(f"__meta_kubernetes_{what}_label_{sanitized}", str(value))


def _common(port: str) -> Iterator[dict[str, Any]]:
    yield {
        "source_labels": ["__meta_kubernetes_pod_phase"],
        "regex": "(Failed|Succeeded)",
        "action": "drop",
    }
    yield _copy("__meta_kubernetes_namespace", "namespace")
    yield _copy("__meta_kubernetes_pod_container_name", "container")
    yield {"target_label": "endpoint", "replacement": port}


def _keep(label: str, value: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": re.escape(value), "action": "keep"}


def _copy(label: str, to: str) -> dict[str, Any]:
    return {"source_labels": [label], "target_label": to}


def _relabeling(given: Mapping[str, Any]) -> dict[str, Any]:
    """As the file spells what the resource does. Raises KeyError for a field without a meaning."""
    return {_RELABELING[field]: value for field, value in given.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", default="", help="the file, for Prometheus to read")
    parser.add_argument("--target", action="append", default=[], metavar="[POD=]HOST:PORT")
    options = parser.parse_args()
    documents = [one for one in yaml.safe_load_all(sys.stdin) if one]
    found = configuration(documents, kubeconfig=options.kubeconfig, targets=options.target)
    if not found["scrape_configs"]:
        hint = " ".join(API_VERSIONS)
        print(f"error: no monitor among what was rendered; give helm {hint}", file=sys.stderr)
        return 1
    yaml.safe_dump(found, sys.stdout, sort_keys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
