"""The certificates of a cluster, made anew for each one and never shared."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from queue_operator.devcluster.network import AddressPlan

VALIDITY = datetime.timedelta(days=365)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name, ())
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def save(self, name: str) -> KeyPair:
        return _save(self._folder, name, self._certificate, self._key)

    def issue(
        self, name: str, common_name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> KeyPair:
        """A certificate for a client and, if it has hosts, for a server too."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(common_name, groups), self._name, key.public_key())
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _save(self._folder, name, certificate, key)


def ensure_pki(folder: Path, plan: AddressPlan, node_name: str) -> None:
    """Makes every certificate of a cluster, unless a previous run finished doing so."""
    finished = folder / ".complete"
    if finished.exists():
        return
    cluster = Authority(folder, "queue-operator-dev")
    cluster.save("ca")
    _issue_servers(cluster, plan)
    _issue_clients(cluster, node_name)
    if plan.node:
        hosts = (node_name, plan.node)
        cluster.issue("kubelet-server", f"system:node:{node_name}", ("system:nodes",), hosts)
    # A proxied request is trusted for any user, so its authority signs nothing else.
    proxies = Authority(folder, "queue-operator-dev-front-proxy")
    proxies.save("front-proxy-ca")
    proxies.issue("front-proxy-client", "front-proxy-client")
    _save_key(folder / "service-account.key", ec.generate_private_key(ec.SECP256R1()))
    finished.touch()


def _issue_servers(cluster: Authority, plan: AddressPlan) -> None:
    service = "kubernetes.default.svc"
    names = ("kubernetes", "kubernetes.default", service, f"{service}.cluster.local")
    addresses = (plan.host, plan.kubernetes_service, "127.0.0.1")
    cluster.issue("apiserver", "kube-apiserver", hosts=(*names, "localhost", *addresses))
    cluster.issue("etcd", "etcd", hosts=("localhost", plan.host))


def _issue_clients(cluster: Authority, node_name: str) -> None:
    cluster.issue("etcd-client", "kube-apiserver-etcd-client")
    cluster.issue("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",))
    cluster.issue("admin", "queue-operator-dev-admin", ("system:masters",))
    for component in ("controller-manager", "scheduler", "proxy"):
        cluster.issue(component, f"system:kube-{component}")
    cluster.issue("coredns", "system:coredns")
    cluster.issue("node", f"system:node:{node_name}", ("system:nodes",))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A clock that runs a little behind must not refuse a new certificate.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALIDITY)
    )


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _save(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    pair = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _save_key(pair.key, key)
    return pair


def _save_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                # The API server reads service-account keys in this format only.
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
