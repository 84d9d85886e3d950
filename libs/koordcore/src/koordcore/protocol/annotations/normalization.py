"""CPU normalization of a node: the ratio (an annotation of the manager) and the switch (a label of the user)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import parse_present
from koordcore.values.invalid import InvalidInput

_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def parse_cpu_normalization_ratio(annotations: Mapping[str, str]) -> float | None:
    """Return the ratio in a node's annotation `cpu-normalization-ratio`; None without the annotation.

    Raises:
        InvalidInput: The text is not a positive, finite number.

    Source:
        protocol spec, 4.4
    """
    return parse_present(annotations, keys.CPU_NORMALIZATION_RATIO, _parse_ratio)


def _parse_ratio(text: str) -> float:
    ratio = float(text) if _FLOAT.fullmatch(text) else 0.0
    if not 0 < ratio < float("inf"):
        raise InvalidInput("a number above 0", text)
    return ratio


def parse_normalization_text(text: str) -> float | None:
    """Convert the text of a CPU normalization ratio to a number; None if it is not a positive, finite number.

    Source:
        manager spec, 5.5 (2)
    """
    try:
        return _parse_ratio(text)
    except InvalidInput:
        return None


def parse_cpu_normalization_enabled(labels: Mapping[str, str]) -> bool | None:
    """Return whether a node's label `cpu-normalization-enabled` enables CPU normalization; None without the label.

    True: `1 t T TRUE true True`. False: `0 f F FALSE false False`.

    Raises:
        InvalidInput: Any other text.

    Source:
        protocol spec, 1.4, 4.3
    """
    return parse_present(labels, keys.CPU_NORMALIZATION_ENABLED, _parse_bool)


def _parse_bool(text: str) -> bool:
    if text not in _BOOLEANS:
        raise InvalidInput("a boolean (1 t T TRUE true True 0 f F FALSE false False)", text)
    return _BOOLEANS[text]
