"""Texts of users in places with limited room: audit records and lines of logs."""

import hashlib
from typing import Final

# Longest name of an object of Kubernetes (RFC 1123 subdomain).
LONGEST_NAME: Final = 253


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """Return the text with at most `most` letters. If it is longer, its length and the beginning of its SHA-256 follow,
    so that two long texts with one beginning differ. Lone surrogates become question marks, because UTF-8 has none.
    """
    if len(text) > most:
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
        text = f"{text[:most]}... ({len(text):,} letters, sha256 {digest})"
    return text.encode(errors="replace").decode()
