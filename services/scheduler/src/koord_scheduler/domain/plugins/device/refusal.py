"""Reasons why the devices of a node do not suit a pod."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from koordcore.protocol import keys

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray


class Refusal(NamedTuple):
    """Reason why a node cannot give devices to a pod."""

    reason: str  # Phrase for the user
    is_resolvable: bool  # Whether this may change if pods leave the node


def insufficient(type_: str, *, is_resolvable: bool = True) -> Refusal:
    """Return the refusal of a node that has too few devices of a type."""
    return Refusal(f"Insufficient {type_} devices", is_resolvable)


def unsupported_model(labels: Mapping[str, str]) -> Refusal:
    """Return the refusal of a node with these labels, whose cards must not be shared."""
    vendor, model = labels.get(keys.GPU_VENDOR, ""), labels.get(keys.GPU_MODEL, "")
    return Refusal(f'model "{model}" of vendor "{vendor}" does not support GPU Share', is_resolvable=False)


class RefusalCodes:
    """Maps device refusals to filter codes and back. The code of a refusal is 2 * (its index + 1), plus 1 if evicting
    pods cannot help.
    """

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._codes: dict[Refusal, int] = {}

    def code(self, refusal: Refusal) -> int:
        """Return the filter code of a refusal. A new refusal gets the next index."""
        code = self._codes.get(refusal)
        if code is None:
            self._reasons.append(refusal.reason)
            code = self._codes[refusal] = 2 * len(self._reasons) + (not refusal.is_resolvable)
        return code

    def reason(self, code: int) -> str:
        return self._reasons[(code >> 1) - 1]

    @staticmethod
    def never(codes: IntArray) -> BoolArray:
        """Return for each filter code whether the node stays refused even if every pod leaves it, bool (K,)."""
        return (codes & 1).astype(np.bool_)
