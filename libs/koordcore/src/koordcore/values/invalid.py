"""The one error for invalid user input: field, rule and value.

Every parser of `koordcore.values` and `koordcore.protocol` raises it, and no other error, for invalid input. Admission
turns it into a refusal. A controller turns it into a condition and an event, and keeps the last valid value.
"""

from __future__ import annotations

import re
from typing import Final

_SHOWN = 120  # Longest part of an invalid value that a message repeats


class InvalidInput(ValueError):
    """A value that a user wrote is invalid. Its text contains field, rule and value.

    Args:
        path: Place of the value: a key, a field path (`spec.containers[0].name`), or "" if the caller adds it.
        rule: Sentence fragment that says which values are accepted, such as "a Kubernetes quantity".
    """

    def __init__(self, rule: str, value: object, path: str = "") -> None:
        self.rule = rule
        self.value = value
        self.path = path
        super().__init__(self.sentence())

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, object, str]]:
        return type(self), (self.rule, self.value, self.path)

    def sentence(self) -> str:
        """Return the error as one sentence: `path: must be rule, got value`."""
        shown = repr(self.value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        where = f"{self.path}: " if self.path else ""
        return f"{where}must be {self.rule}, got {shown}"

    def at(self, path: str) -> InvalidInput:
        """Return a copy of this error in which `path` is put before its own path."""
        if not self.path:
            joined = path
        elif self.path.startswith("["):
            joined = path + self.path
        else:
            joined = f"{path}.{self.path}"
        return type(self)(self.rule, self.value, joined)


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def joined(path: str, steps: tuple[str | int, ...]) -> str:
    """Return a field path such as `profiles[0].pluginConfig[1].args.resourceWeights[nvidia.com/gpu]`. `path`: the first
    part of the path; "" for none. `steps`: names of fields and indexes of lists below it.
    """
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{step}]"
    return path
