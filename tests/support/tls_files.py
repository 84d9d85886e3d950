"""A self-made certificate authority for embedded servers: one CA, one server and one client certificate.

Only for loopback. The files go into `nats_config.NatsTls` and into the client's TLS context.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files; keys have mode 0600. The CA's own key is kept nowhere: renewal makes a new CA."""

    ca: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path


def ensure_tls_files(directory: Path, *, now: datetime.datetime) -> TlsFiles:
    """The files in this folder; made anew when one is missing or the certificates end within 30 days of `now`.

    now     aware, UTC
    """
    files = TlsFiles(
        ca=directory / "ca.pem",
        server_certificate=directory / "server.pem",
        server_key=directory / "server.key",
        client_certificate=directory / "client.pem",
        client_key=directory / "client.key",
    )
    if not _are_usable(files, now):
        directory.mkdir(parents=True, exist_ok=True)
        _create(files, now)
    return files


def _are_usable(files: TlsFiles, now: datetime.datetime) -> bool:
    every = (files.ca, files.server_certificate, files.server_key, files.client_certificate, files.client_key)
    if not all(file.exists() for file in every):
        return False
    certificate = x509.load_pem_x509_certificate(files.server_certificate.read_bytes())
    return certificate.not_valid_after_utc - now > RENEW_BEFORE


def _create(files: TlsFiles, now: datetime.datetime) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("Koordstream embedded CA")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write(files.ca, ca.public_bytes(serialization.Encoding.PEM), mode=0o644)
    for common_name, usage, certificate_file, key_file in (
        ("koord-server", ExtendedKeyUsageOID.SERVER_AUTH, files.server_certificate, files.server_key),
        ("koord-client", ExtendedKeyUsageOID.CLIENT_AUTH, files.client_certificate, files.client_key),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(common_name), ca_name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .add_extension(_loopback_names(), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(key_file, pem, mode=0o600)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _loopback_names() -> x509.SubjectAlternativeName:
    addresses = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
    return x509.SubjectAlternativeName([x509.DNSName("localhost"), *map(x509.IPAddress, addresses)])


def _write(file: Path, content: bytes, *, mode: int) -> None:
    """Replace a file without a moment in which a key is readable by others."""
    file.unlink(missing_ok=True)
    file.touch(mode=mode, exist_ok=False)
    file.write_bytes(content)
