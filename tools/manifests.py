"""Generates `crds/`: the custom resource definitions and the admission policy."""

from pathlib import Path
from typing import Any

import yaml

from queue_operator.crd import manifest, policy

_HEADER = "# Generated from operator/queue_operator/crd by `make generate`. Do not edit.\n"


def manifests() -> dict[Path, str]:
    """The text of every manifest by its path in the repository."""
    folder = Path("crds")
    return {
        folder / "queuejobs.yaml": _text(manifest.queue_job_crd()),
        folder / "queueworkers.yaml": _text(manifest.queue_worker_crd()),
        folder / "queuejobs-payload-policy.yaml": _text(
            policy.payload_policy(), policy.payload_policy_binding()
        ),
    }


def _text(*documents: dict[str, Any]) -> str:
    return _HEADER + "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=96) for document in documents
    )


class _Dumper(yaml.SafeDumper):
    """Writes each value in full: anchors read badly in a manifest."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
