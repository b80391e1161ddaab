"""Kubeconfig files that carry their certificates, so that they may be copied."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.state import StateFolder

# What each kubeconfig's user presents; the file is named after the user.
USERS = ("admin", "controller-manager", "scheduler", "proxy", "coredns", "node")


def write_kubeconfigs(folder: StateFolder, plan: AddressPlan) -> None:
    for user in USERS:
        path = folder.kubeconfig(user)
        if not path.exists():
            _write(path, document(folder, plan, user))


def document(folder: StateFolder, plan: AddressPlan, user: str) -> dict[str, Any]:
    """One user's kubeconfig; the cluster and the context bear the cluster's name."""
    name = f"queue-operator-{folder.name}"
    cluster = {
        "server": plan.api_url,
        "certificate-authority-data": _encoded(folder.pki / "ca.crt"),
    }
    credentials = {
        "client-certificate-data": _encoded(folder.pki / f"{user}.crt"),
        "client-key-data": _encoded(folder.pki / f"{user}.key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(path: Path, content: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(content, file)
