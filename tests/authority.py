"""Certificates of an authority of the test's own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates, as PEM files in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = _sign(self._name, self._name, self._key, self._key, ca=True)
        self.file = self._write(f"{name}.pem", self.certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Files of a certificate and its key; those of an earlier one of the name are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = _sign(subject, self._name, key, self._key, ca=False, hosts=hosts)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return (
            self._write(f"{name}.crt", certificate.public_bytes(Encoding.PEM)),
            self._write(f"{name}.key", private),
        )

    def _write(self, name: str, text: bytes) -> Path:
        # As the kubelet does: a new file in the place of the old one.
        fresh = self._folder / f"{name}.new"
        fresh.write_bytes(text)
        return fresh.replace(self._folder / name)


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())
