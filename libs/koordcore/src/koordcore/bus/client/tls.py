"""TLS of a client's connection to the NATS server."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientFiles:
    """PEM files for a client's TLS connection.

    Attributes:
        ca: Authorities that may have signed the server's certificate.
        certificate: Certificate of this client; None: the client shows none.
        key: Key of this certificate.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


def client_context(files: TlsClientFiles | None) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None for a connection without TLS.

    Raises:
        OSError: A file cannot be read, or does not contain a valid certificate or key. The message names the file.
    """
    if files is None:
        return None
    # nats-py upgrades to TLS in a way that makes asyncio warn of each end of a connection.
    logging.getLogger("asyncio").addFilter(_is_no_end_of_tls)
    read = files.ca
    try:
        context = ssl.create_default_context(cafile=str(files.ca))
        if files.certificate is not None:
            read = files.certificate
            context.load_cert_chain(files.certificate, files.key)
    except OSError as error:  # an SSLError, too; neither names the file
        raise OSError(f"{read}: {error}") from error
    return context


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("returning true from eof_received()")
