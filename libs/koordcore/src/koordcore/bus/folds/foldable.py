"""What a fold is: a state that events are applied to, how it begins, and what is reported of it."""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from koordcore.events.envelope import StoredEvent


class Foldable(Protocol):
    """State that is a fold of the log, e.g. `koordcore.state.ClusterState`."""

    def apply(self, stored: StoredEvent) -> object:
        """Fold one event and return what `on_batch` shall be given for it.

        Raises:
            Exception: The event cannot be folded; the state is unchanged.
        """
        ...

    def skip(self, seq: int) -> None:
        """Advance past one event without folding it."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as it is now, as bytes in pieces. The fold may go on before they are consumed."""
        ...


F = TypeVar("F", bound=Foldable)


class Folded(NamedTuple):
    """An event that was applied, with the result of `apply`."""

    stored: StoredEvent
    result: object


class Halt(NamedTuple):
    """The event before which a fold is halted, and the reason."""

    seq: int
    reason: str

    def __str__(self) -> str:
        return f"halted before event {self.seq}: {self.reason}"


class FoldSource(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """How the state of a fold begins.

    Attributes:
        fresh: Returns the empty state.
        restore: Returns the state of a snapshot, given its bytes joined.
        fingerprint: Digest of the schema of the state.
    """

    fresh: Callable[[], F]
    restore: Callable[[bytes], F]
    fingerprint: str
