"""Tells an error that a person has to mend from one that passes, while a connection to the NATS server is opened."""

import ssl
from typing import Final

from nats.errors import AuthorizationError

_WORDS: Final = ("authorization", "authentication", "permissions")
_TOO_SLOW: Final = "authentication timeout"
"""Error of the server if the client sent its credentials too late, because the client or its machine is busy."""


def is_refusal(error: Exception) -> bool:
    """Return whether the server refuses the user or has an untrusted certificate, so that a retry would not help."""
    if isinstance(error, (AuthorizationError, ssl.SSLCertVerificationError)):
        return True
    text = str(error).lower()
    return any(word in text for word in _WORDS) and _TOO_SLOW not in text
