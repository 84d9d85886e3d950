"""The certificate of an HTTP server. Rotated files are loaded into the same TLS context, without a restart."""

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Final

from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.http")


class Certificate:
    """The certificate of a server.

    Args:
        context: TLS context of the server. The certificate is loaded into it.
        key: File with the key; None if it is in the file of the certificate.

    Raises:
        OSError: A file cannot be read, or does not contain a certificate with its key.
    """

    def __init__(self, context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
        self.context = context  # The TLS context. New connections use the certificate that was loaded last.
        self._cert = cert
        self._key = key
        self._seen = self._digests()
        self.context.load_cert_chain(cert, key)

    def reload_when_rotated(self) -> bool:
        """Load the certificate again if its files changed; return whether it was loaded. If certificate and key do not
        match because only one was rotated yet, the next call tries again.
        """
        try:
            digests = self._digests()
            if digests == self._seen:
                return False
            # A mismatched pair would spoil the live context, so it is tried on another one first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            self.context.load_cert_chain(self._cert, self._key)
        except OSError as error:
            _log.warning("certificate_not_reloaded", file=str(self._cert), error=str(error))
            return False
        self._seen = digests
        _log.info("certificate_reloaded", file=str(self._cert))
        return True

    def _digests(self) -> list[bytes]:
        return [sha256(file.read_bytes()).digest() for file in (self._cert, self._key) if file is not None]
