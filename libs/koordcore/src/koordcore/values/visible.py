"""Texts of users on a terminal: control characters become visible, so that the terminal does not carry them out.

ESC begins orders to a terminal, for example to clear it, to change its title, or to show one address and open another.
A carriage return or a backspace overwrites what was printed. Bidirectional overrides show text in another order.

Source: CWE-150; ECMA-48; Unicode Technical Report 36.
"""

import re
from typing import Final

# C0 but tab and newline, DEL and C1; marks and overrides of direction; line and paragraph separators; lone surrogates.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return the text with control characters as escapes, such as `\x1b`. Tabs and newlines stay."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return the text with control characters as escapes, tabs and newlines too: it cannot look like several lines."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def visible_json(document: str) -> str:
    r"""Return a JSON document with control characters as its own escapes, such as `\u001b`. It means the same."""
    return document if document.isascii() and document.isprintable() else _CONTROL.sub(_escape_of_json, document)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_of_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
