"""The one error of user input: which field, which rule, which value.

Every parser of `koordcore.values` and `koordcore.protocol` raises it; admission turns it into a refusal, a controller
into a condition plus an event, and keeps the last good value. Nothing else is raised for what a user may write.
"""

from __future__ import annotations

_SHOWN = 120
"""Longest part of an offending value that a message repeats."""


class InvalidInput(ValueError):
    """A value that a user wrote and that no rule of the protocol accepts.

    Args:
        path: Where it stands: a key, a field path (`spec.containers[0].name`) or "" when the caller knows it better.
        rule: What would be accepted, as a sentence fragment ("a Kubernetes quantity").
        value: The offending value, unchanged.
    """

    def __init__(self, rule: str, value: object, path: str = "") -> None:
        self.rule = rule
        self.value = value
        self.path = path
        super().__init__(self.sentence())

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, object, str]]:
        return type(self), (self.rule, self.value, self.path)

    def sentence(self) -> str:
        """One line for a person: `path: must be rule, got value`."""
        shown = repr(self.value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        where = f"{self.path}: " if self.path else ""
        return f"{where}must be {self.rule}, got {shown}"

    def at(self, path: str) -> InvalidInput:
        """Return the same error with a path put in front of its own path."""
        if not self.path:
            joined = path
        elif self.path.startswith("["):
            joined = path + self.path
        else:
            joined = f"{path}.{self.path}"
        return type(self)(self.rule, self.value, joined)
