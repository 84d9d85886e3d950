"""Types of a fold: the state that events are applied to, how it begins, and what is reported about it."""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from koordcore.events.envelope import StoredEvent


class Foldable(Protocol):
    """A state that is a fold of the log, for example `koordcore.state.ClusterState`."""

    def apply(self, stored: StoredEvent) -> object:
        """Apply one event and return a value for `on_batch`.

        Raises:
            Exception: The event cannot be applied. The state is unchanged.
        """
        ...

    def skip(self, seq: int) -> None:
        """Advance past one event without applying it."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Return the current state as bytes in pieces. Events may be applied before they are consumed."""
        ...


F = TypeVar("F", bound=Foldable)


class Folded(NamedTuple):
    """An event that was applied, and the result of `apply`."""

    stored: StoredEvent
    result: object


class Halt(NamedTuple):
    """The event before which a fold has halted, and the reason."""

    seq: int
    reason: str

    def __str__(self) -> str:
        return f"halted before event {self.seq}: {self.reason}"


class FoldSource(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """Functions that create the first state of a fold.

    Attributes:
        fresh: Returns the empty state.
        restore: Returns the state in a snapshot, given its joined bytes.
        fingerprint: Digest of the schema of the state. Snapshots with another digest are not used.
    """

    fresh: Callable[[], F]
    restore: Callable[[bytes], F]
    fingerprint: str
