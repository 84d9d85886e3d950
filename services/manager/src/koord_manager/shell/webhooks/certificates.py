"""Make and check the certificates of the webhooks: that of the authority and that of the server.

All replicas share one bundle. It is renewed six months before it expires.

The environment variables of the webhook server have Koordinator's names and defaults.

Source:
    manager spec, 7.1, 7.2; protocol spec, 11.1
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from koordcore.bus.setup.tls_files import certificate_builder, general_name, x509_name
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.webhooks import Address

VALIDITY: Final = datetime.timedelta(days=3650)
RENEW_BEFORE: Final = datetime.timedelta(days=183)
CA_REUSED_WITH: Final = datetime.timedelta(days=365)
CA_NAME: Final = "webhook-cert-ca"
KEY_BITS: Final = 2048

CA_KEY, CA_CERT, KEY, CERT, TLS_KEY, TLS_CERT = (
    "ca-key.pem",
    "ca-cert.pem",
    "key.pem",
    "cert.pem",
    "tls.key",
    "tls.crt",
)
"""Keys of the Secret, and names of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The private keys and certificates of the certificate authority and of the webhook server, as PEM texts."""

    ca_key: bytes
    ca_cert: bytes
    key: bytes
    cert: bytes

    def files(self) -> dict[str, bytes]:
        """Return file name -> PEM text. These are the entries of the Secret and the files in the certificate folder."""
        return {
            CA_KEY: self.ca_key,
            CA_CERT: self.ca_cert,
            KEY: self.key,
            CERT: self.cert,
            TLS_KEY: self.key,
            TLS_CERT: self.cert,
        }

    def expires(self) -> datetime.datetime:
        """Return the time when the first of the two certificates expires, in UTC."""
        ends = (x509.load_pem_x509_certificate(pem).not_valid_after_utc for pem in (self.cert, self.ca_cert))
        return min(ends)


def read_bundle(files: Mapping[str, bytes]) -> Bundle | None:
    """Return the bundle in the entries of a Secret or the files of a folder, or None if an entry is missing."""
    parts = [files.get(name, b"") for name in (CA_KEY, CA_CERT, KEY, CERT)]
    if not all(parts):
        return None
    return Bundle(ca_key=parts[0], ca_cert=parts[1], key=parts[2], cert=parts[3])


def why_invalid(bundle: Bundle | None, host: str, now: datetime.datetime) -> str | None:
    """Return the reason why a bundle has to be renewed, or None if it is valid for at least six more months.

    Args:
        host: DNS name or IP that the API server calls; the certificate has to contain it.
        now: The time in UTC.

    Source: manager spec, 7.2 (1).
    """
    if bundle is None:
        return "it is missing"
    try:
        cert = x509.load_pem_x509_certificate(bundle.cert)
        ca = x509.load_pem_x509_certificate(bundle.ca_cert)
        key = serialization.load_pem_private_key(bundle.key, None)
    except (ValueError, TypeError) as error:
        return f"it cannot be read: {error}"
    if _public(key.public_key()) != _public(cert.public_key()):
        return "the key does not belong to the certificate"
    if not _is_signed_by(cert, ca):
        return "the certificate does not chain to the CA"
    if not _covers(cert, host):
        return f"the certificate does not cover {host}"
    for name, each in (("certificate", cert), ("CA", ca)):
        if not each.not_valid_before_utc <= now or now + RENEW_BEFORE > each.not_valid_after_utc:
            return f"the {name} ends {each.not_valid_after_utc:%Y-%m-%d}"
    return None


def make_bundle(host: str, now: datetime.datetime, previous: Bundle | None = None) -> Bundle:
    """Make a new server certificate and return it in a bundle; this takes 0.1 to 0.5 s (manager spec, 7.2 (2)).

    If the previous authority (None: there is none) is valid for another year, it signs the certificate. Otherwise a new
    authority is made.
    """
    authority = _reusable(previous, now) or _make_authority(now)
    ca_key, ca = authority
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    end = min(now + VALIDITY, ca.not_valid_after_utc)
    cert = (
        certificate_builder(x509_name(host), ca.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=True,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([general_name(host), x509.DNSName("localhost")]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Bundle(ca_key=_pem_key(ca_key), ca_cert=_pem(ca), key=_pem_key(key), cert=_pem(cert))


def _make_authority(now: datetime.datetime) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    name = x509_name(CA_NAME)
    ca = (
        certificate_builder(name, name, key.public_key(), now, now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                key_encipherment=False,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, ca


def _reusable(previous: Bundle | None, now: datetime.datetime) -> tuple[rsa.RSAPrivateKey, x509.Certificate] | None:
    if previous is None:
        return None
    try:
        ca = x509.load_pem_x509_certificate(previous.ca_cert)
        key = serialization.load_pem_private_key(previous.ca_key, None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, rsa.RSAPrivateKey) or _public(key.public_key()) != _public(ca.public_key()):
        return None
    lives = ca.not_valid_before_utc <= now and now + CA_REUSED_WITH <= ca.not_valid_after_utc
    return (key, ca) if lives else None


def _is_signed_by(cert: x509.Certificate, ca: x509.Certificate) -> bool:
    public = ca.public_key()
    if cert.issuer != ca.subject or not isinstance(public, rsa.RSAPublicKey):
        return False
    assert cert.signature_hash_algorithm is not None
    try:
        public.verify(cert.signature, cert.tbs_certificate_bytes, padding.PKCS1v15(), cert.signature_hash_algorithm)
    except InvalidSignature:
        return False
    return True


def _covers(cert: x509.Certificate, host: str) -> bool:
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return general_name(host) in list(names)


def _public(key: object) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]  # every public key has it


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEnvironment:
    """Address of the webhook server, place of its certificates, and names of the objects to maintain."""

    namespace: str = "koordinator-system"  # Namespace of the Secret and the Service
    port: int = 9876
    host: str = ""  # Host that the API server calls (WEBHOOK_HOST), or empty if it calls the Service
    # Folder of the certificates.
    directory: Path = Path("/tmp/koordinator-webhook-certs")  # noqa: S108 - the reference's place, overridable
    writer: Literal["fs", "secret"] = "secret"  # "secret" for a Secret that all replicas share, "fs" for files only
    # Name of the Secret.
    secret: str = "koordinator-webhook-certs"  # noqa: S105 - the name of an object
    service: str = "koordinator-webhook-service"
    mutating: str = "koordinator-mutating-webhook-configuration"
    validating: str = "koordinator-validating-webhook-configuration"

    @property
    def dns_name(self) -> str:
        """Host name or IP that the server certificate has to contain."""
        return self.host or f"{self.service}.{self.namespace}.svc"

    @property
    def address(self) -> Address:
        return Address(namespace=self.namespace, service=self.service, host=self.host, port=self.port)


def read_environment(environ: Mapping[str, str]) -> WebhookEnvironment:
    """Read the settings of the webhook server from environment variables; those that are not set have defaults.

    Without WEBHOOK_CERT_WRITER, the writer is "fs" if WEBHOOK_HOST is set, otherwise "secret".

    Raises:
        InvalidInput: A port is not a number, or the writer is unknown.
    """
    host = environ.get("WEBHOOK_HOST", "")
    writer = environ.get("WEBHOOK_CERT_WRITER") or ("fs" if host else "secret")
    if writer not in ("fs", "secret"):
        raise InvalidInput("fs or secret", writer, "WEBHOOK_CERT_WRITER")
    written = environ.get("WEBHOOK_PORT") or "9876"
    if not written.isascii() or not written.isdigit() or int(written) > 65535:
        raise InvalidInput("a port, 0..65535", written, "WEBHOOK_PORT")
    defaults = WebhookEnvironment()
    return WebhookEnvironment(
        namespace=environ.get("POD_NAMESPACE") or defaults.namespace,
        port=int(written),
        host=host,
        directory=Path(environ.get("WEBHOOK_CERT_DIR") or defaults.directory),
        writer=writer,
        secret=environ.get("SECRET_NAME") or defaults.secret,
        service=environ.get("SERVICE_NAME") or defaults.service,
        mutating=environ.get("MUTATING_WEBHOOK_NAME") or defaults.mutating,
        validating=environ.get("VALIDATING_WEBHOOK_NAME") or defaults.validating,
    )
