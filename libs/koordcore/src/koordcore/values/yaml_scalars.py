"""What a plain scalar of YAML means, as Go's parser reads it for kubectl and the API server.

It is YAML 1.1 without numbers of base 60 (`12:30` and `0000:47:00.0` are text), without dates, and without the value
`=`. In JSON a whole number has no fraction, so that `1.0` and `1e3` are integers. Numbers that do not fit into 64 bits
are read as floating-point numbers, or as text if they are not decimal.

Source: reality spec, 1.8; sigs.k8s.io/yaml with go-yaml v2 (`resolve`, `convertToJSONableObject`).
"""

import math
import re
from typing import Final

PREFIX: Final = "tag:yaml.org,2002:"
BOOL: Final = PREFIX + "bool"
INT: Final = PREFIX + "int"
FLOAT: Final = PREFIX + "float"
MERGE: Final = PREFIX + "merge"
TIMESTAMP: Final = PREFIX + "timestamp"

_BOOLEANS: Final = {
    **dict.fromkeys(("y", "yes", "true", "on"), True),
    **dict.fromkeys(("n", "no", "false", "off"), False),
}

_DIGITS: Final = r"[0-9][0-9_]*"
_INT: Final = rf"[-+]?(?:0[bB]_*[01][01_]*|0[oO]_*[0-7][0-7_]*|0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|{_DIGITS})"
_EXPONENT: Final = rf"[eE][-+]?{_DIGITS}"
_SPECIAL: Final = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_FLOAT: Final = (
    rf"[-+]?{_DIGITS}(?:\.[0-9_]*(?:{_EXPONENT})?|{_EXPONENT})|[-+]\.{_DIGITS}(?:{_EXPONENT})?"
    rf"|\.[0-9]+(?:[eE][-+]?[0-9]+)?|{_SPECIAL}"
)
_WORDS: Final = "|".join(sorted({form for word in _BOOLEANS for form in (word, word.capitalize(), word.upper())}))

# Tag, whole text of the scalars that have it, and their first characters.
PLAIN: Final = (
    (BOOL, re.compile(rf"(?:{_WORDS})\Z"), "yYnNtTfFoO"),
    (FLOAT, re.compile(rf"(?:{_FLOAT})\Z"), "-+.0123456789"),
    (INT, re.compile(rf"(?:{_INT})\Z"), "-+0123456789"),
    (MERGE, re.compile(r"<<\Z"), "<"),
    (PREFIX + "null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ("~", "n", "N", "")),
)

_BASES: Final = {"0b": 2, "0o": 8, "0x": 16}
_LOWEST, _ABOVE = -(1 << 63), 1 << 64
_WHOLE_BELOW: Final = 1e21  # Go writes greater numbers with an exponent


def boolean(text: str) -> bool:
    """Return the value of a boolean. Raises ValueError for another word."""
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError(f"{text} is no boolean")
    return found


def integer(text: str) -> int | float | str:
    """Return the value of an integer. A leading 0 means octal, unless a digit is 8 or 9.

    Raises:
        ValueError: The text is no integer.
    """
    plain = text.replace("_", "").lower()
    digits = plain.lstrip("+-")
    base = _BASES.get(digits[:2])
    if base is None:
        base = 8 if len(digits) > 1 and digits[0] == "0" and not {"8", "9"} & set(digits) else 10
        number = int(plain, base)
        return number if _LOWEST <= number < _ABOVE else real(text)
    number = int(digits[2:], base) * (-1 if plain[0] == "-" else 1)
    return number if _LOWEST <= number < _ABOVE else text


def real(text: str) -> int | float | str:
    """Return the value of a floating-point number: an integer if it is whole, and the text itself if it is too large.

    Raises:
        ValueError: The text is no number.
    """
    plain = text.replace("_", "").lower()
    if plain.endswith((".inf", ".nan")):
        return float(plain.replace(".", ""))
    number = float(plain)
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and abs(number) < _WHOLE_BELOW else number


def key(value: object) -> object:
    """Return a key of a mapping as JSON's text, if Go can write it as one: integers and booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value
