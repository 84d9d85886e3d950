"""Make and renew TLS files: an authority, and the certificates that it signs for servers and clients.

`installation` writes them for NATS, Postgres and the HTTP servers outside of the embedded stack. The files go into
`nats_config.NatsTls` and into `client.connection.TlsClientFiles`.

Source: event-bus spec, 10.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_VALIDITY: Final = datetime.timedelta(days=3650)
VALIDITY: Final = datetime.timedelta(days=365)
RENEW_BEFORE: Final = datetime.timedelta(days=30)
CLOCK_SKEW: Final = datetime.timedelta(minutes=5)
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
SERVER_CERTIFICATE: Final = "tls.crt"
SERVER_KEY: Final = "tls.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one authority and the certificates that it has signed. Private keys have mode 0600."""

    ca: Path
    ca_key: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path


def ensure_tls_files(directory: Path, *, now: datetime.datetime, hosts: Sequence[str] = LOOPBACK_HOSTS) -> TlsFiles:
    """Return the TLS files in a folder. Files that are missing, end within 30 days, or lack a host are made anew. New
    certificates are valid for a year. An authority that is valid for at least another year is kept, so that clients
    need no new `ca.crt`.

    Args:
        directory: Folder of the files. It is created if it does not exist.
        now: The time in UTC.
        hosts: DNS names and IP addresses under which clients reach the server.
    """
    files = TlsFiles(
        ca=directory / "ca.crt",
        ca_key=directory / "ca.key",
        server_certificate=directory / SERVER_CERTIFICATE,
        server_key=directory / SERVER_KEY,
        client_certificate=directory / "client.crt",
        client_key=directory / "client.key",
    )
    directory.mkdir(parents=True, exist_ok=True)
    authority = _authority(files, now) or _make_authority(files, now)
    # Members of a cluster of servers are clients of each other.
    _ensure_pair("koord-server", (SERVER, CLIENT), files.server_certificate, files.server_key, hosts, now, authority)
    _ensure_pair("koord-client", (CLIENT,), files.client_certificate, files.client_key, hosts, now, authority)
    return files


def ensure_server_certificate(
    signed_by: TlsFiles,
    folder: Path,
    common_name: str,
    *,
    now: datetime.datetime,
    hosts: Sequence[str],
    key_mode: int = 0o600,
) -> None:
    """Make `tls.crt` and `tls.key` of one server in its folder, under the conditions of `ensure_tls_files`.

    Args:
        signed_by: Files of the authority, which `ensure_tls_files` has just returned.
        folder: Folder of the two files. It is created if it does not exist.
        now: The time in UTC.
        hosts: DNS names and IP addresses under which clients reach the server.
        key_mode: Access bits of the file of the private key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority(signed_by, now)
    assert authority is not None, "the authority was just made or kept"
    _ensure_pair(
        common_name,
        (SERVER,),
        folder / SERVER_CERTIFICATE,
        folder / SERVER_KEY,
        hosts,
        now,
        authority,
        key_mode=key_mode,
    )


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _authority(files: TlsFiles, now: datetime.datetime) -> _Authority | None:
    """Return the authority in the files; None if there is none, or if it ends before a new certificate would."""
    if not (files.ca.exists() and files.ca_key.exists()):
        return None
    ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
    key = serialization.load_pem_private_key(files.ca_key.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or ca.not_valid_after_utc < now + VALIDITY:
        return None
    return _Authority(ca, key)


def _make_authority(files: TlsFiles, now: datetime.datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509_name("Koordstream CA")
    ca = (
        certificate_builder(name, name, key.public_key(), now, now + CA_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(files.ca_key, _pem_key(key), mode=0o600)
    _write(files.ca, ca.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return _Authority(ca, key)


def _ensure_pair(
    common_name: str,
    usages: Sequence[x509.ObjectIdentifier],
    certificate_file: Path,
    key_file: Path,
    hosts: Sequence[str],
    now: datetime.datetime,
    authority: _Authority,
    *,
    key_mode: int = 0o600,
) -> None:
    if key_file.exists() and _is_usable(certificate_file, hosts, now, authority):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        certificate_builder(
            x509_name(common_name), authority.certificate.subject, key.public_key(), now, now + VALIDITY
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(key_file, _pem_key(key), mode=key_mode)
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _is_usable(certificate_file: Path, hosts: Sequence[str], now: datetime.datetime, authority: _Authority) -> bool:
    if not certificate_file.exists():
        return False
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (InvalidSignature, ValueError):  # by an earlier authority
        return False
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return certificate.not_valid_after_utc - now > RENEW_BEFORE and set(map(general_name, hosts)) <= set(names)


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
    )


def x509_name(common_name: str) -> x509.Name:
    # a common name holds 64 characters; clients go by the alternative names
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes, *, mode: int) -> None:
    """Replace a file. At no moment can other users read a private key."""
    file.unlink(missing_ok=True)
    file.touch(mode=mode, exist_ok=False)
    file.write_bytes(content)
