"""Certificates verify against their authority, and name whom they must."""

import ipaddress
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from queue_operator.devcluster.kubeconfig import USERS, write_kubeconfigs
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.pki import ensure_pki
from queue_operator.devcluster.state import StateFolder

PLAN = AddressPlan(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StateFolder:
    folder = StateFolder(tmp_path_factory.mktemp("state") / "dev")
    folder.create()
    ensure_pki(folder.pki, PLAN, "dev-node")
    write_kubeconfigs(folder, PLAN)
    return folder


def certificate(folder: StateFolder, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder.pki / f"{name}.crt").read_bytes())


def subject(folder: StateFolder, name: str) -> tuple[str, list[str]]:
    found = certificate(folder, name).subject
    groups = [str(item.value) for item in found.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return str(found.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value), groups


def test_every_certificate_is_signed_by_its_authority(folder: StateFolder) -> None:
    for path in folder.pki.glob("*.crt"):
        issuer = "front-proxy-ca" if path.stem.startswith("front-proxy") else "ca"
        certificate(folder, path.stem).verify_directly_issued_by(certificate(folder, issuer))


def test_servers_name_their_addresses(folder: StateFolder) -> None:
    names = certificate(folder, "apiserver").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert {ipaddress.ip_address(PLAN.host), ipaddress.ip_address(PLAN.kubernetes_service)} <= set(
        addresses
    )
    assert "kubernetes.default.svc" in names.value.get_values_for_type(x509.DNSName)


def test_clients_are_whom_rbac_knows(folder: StateFolder) -> None:
    assert subject(folder, "node") == ("system:node:dev-node", ["system:nodes"])
    assert subject(folder, "scheduler") == ("system:kube-scheduler", [])
    assert subject(folder, "controller-manager") == ("system:kube-controller-manager", [])
    assert subject(folder, "admin")[1] == ["system:masters"]


def test_keys_are_private(folder: StateFolder) -> None:
    for path in folder.pki.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
        load_pem_private_key(path.read_bytes(), None)


def test_a_finished_pki_is_not_made_again(folder: StateFolder) -> None:
    before = {path: path.read_bytes() for path in folder.pki.iterdir()}
    ensure_pki(folder.pki, PLAN, "dev-node")
    assert {path: path.read_bytes() for path in folder.pki.iterdir()} == before


def test_an_interrupted_pki_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("half")
    (tmp_path / "ca.key").write_text("half")
    ensure_pki(tmp_path, PLAN, "dev-node")
    ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))


@pytest.mark.parametrize("user", USERS)
def test_kubeconfigs_carry_everything(folder: StateFolder, user: str) -> None:
    path = folder.kubeconfig(user)
    content = yaml.safe_load(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert content["clusters"][0]["cluster"]["server"] == PLAN.api_url
    assert content["users"][0]["name"] == user
    assert content["current-context"] == content["contexts"][0]["name"] == "queue-operator-dev"
