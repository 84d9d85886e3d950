"""Environment variables of the webhook server, with Koordinator's names and defaults.

Source:
    manager spec, 7.1, 7.2; protocol spec, 11.1
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.webhooks import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEnvironment:
    """Address of the webhook server, place of its certificates, and names of the objects to maintain.

    Attributes:
        namespace: Namespace of the Secret and the Service.
        port: Port of the webhook server.
        host: Host that the API server calls (WEBHOOK_HOST), or empty if it calls the Service.
        directory: Folder of the certificates.
        writer: "secret" for a Secret that all replicas share, "fs" for files only.
        secret: Name of the Secret.
        service: Name of the Service.
        mutating: Name of the MutatingWebhookConfiguration.
        validating: Name of the ValidatingWebhookConfiguration.
    """

    namespace: str = "koordinator-system"
    port: int = 9876
    host: str = ""
    directory: Path = Path("/tmp/koordinator-webhook-certs")  # noqa: S108 - the reference's place, overridable
    writer: Literal["fs", "secret"] = "secret"
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
        """Address at which the API server calls this server."""
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
