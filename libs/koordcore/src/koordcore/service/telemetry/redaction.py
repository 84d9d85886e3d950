"""Redaction of secrets in logs: values under secret names, key seeds, passwords in URLs, bearer tokens."""

import re
from typing import Final, cast

HIDDEN: Final = "**********"

_SECRET_NAME: Final = re.compile(
    r"(password|passwd|secret|token|seed|credential|creds|authorization|private_?key)s?$", re.I
)
_SECRET_TEXTS: Final = (
    # A NATS key seed: S, the kind of key, then base32.
    (re.compile(r"\bS[UAONCX][A-Z2-7]{54,60}\b"), HIDDEN),
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[-A-Za-z0-9._~+/]{8,}=*"), rf"\1 {HIDDEN}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.S), HIDDEN),
    (re.compile(r"\beyJ[-A-Za-z0-9_]{8,}\.[-A-Za-z0-9_]{8,}\.[-A-Za-z0-9_]*"), HIDDEN),
)
# One of these occurs in every text that the patterns above can match; a log line without them costs five substring
# looks.
_HINTS: Final = ("://", "earer", "asic", "PRIVATE", "eyJ")
_MAYBE_SEED: Final = re.compile(r"S[UAONCX][A-Z2-7]{20}")


def is_secret_name(name: str) -> bool:
    """Return whether values of fields with this name are always hidden in logs.

    Names such as `password` are. Names that end with `_file` are not, because their values are paths.
    """
    return _SECRET_NAME.search(name) is not None


def redact_text(text: str) -> str:
    """Return the text with key seeds, passwords in URLs, tokens and private keys replaced by asterisks."""
    if not any(hint in text for hint in _HINTS) and _MAYBE_SEED.search(text) is None and "BASIC" not in text.upper():
        return text
    for pattern, replacement in _SECRET_TEXTS:
        text = pattern.sub(replacement, text)
    return text


def redact(value: object) -> object:
    """Return a copy of the value with secrets replaced by asterisks at any depth of lists and dicts.

    Values that are neither text nor containers stay unchanged.
    """
    match value:
        case str():
            return redact_text(value)
        case dict():
            return {
                key: HIDDEN if isinstance(key, str) and is_secret_name(key) else redact(part)
                for key, part in cast("dict[object, object]", value).items()
            }
        case list() | tuple():
            return [redact(part) for part in cast("list[object]", value)]
        case _:
            return value
