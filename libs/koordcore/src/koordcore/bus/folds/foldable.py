"""Types of a fold: the state to which events are applied, how the first state is created, and why a fold halts."""

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from koordcore.events.envelope import StoredEvent


class Foldable(Protocol):
    """A state to which the events of the log are applied in order, for example `koordcore.state.ClusterState`."""

    def apply(self, stored: StoredEvent) -> object:
        """Apply one event to the state. The returned value is passed to the `on_batch` of the runner.

        Raises:
            Exception: The event cannot be applied. The state must then be unchanged.
        """
        ...

    def skip(self, seq: int) -> None:
        """Set the position of the state to `seq` without applying the event."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Return the state at the time of the call as bytes in pieces.

        Events may be applied before they are consumed.
        """
        ...


F = TypeVar("F", bound=Foldable)


class Folded(NamedTuple):
    """One event that a `FoldRunner` has applied to its state, and what the state's `apply` returned for it.

    Attributes:
        stored: The event as stored.
        result: Return value of `Foldable.apply`, for `ClusterState` the decoded event.
    """

    stored: StoredEvent
    result: object


class Halt(NamedTuple):
    """The halt of a fold: the event that the fold cannot decode or apply, and the reason.

    Attributes:
        seq: Sequence of this event. The state contains everything before it.
        reason: Error, one sentence.
    """

    seq: int
    reason: str

    def __str__(self) -> str:
        return f"halted before event {self.seq}: {self.reason}"


class FoldSource(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """The functions that create the first state of a fold: empty, or from a snapshot.

    Attributes:
        fresh: Returns the empty state.
        restore: Returns the state in a snapshot, given its joined bytes.
        fingerprint: Digest of the schema of the state. Snapshots with another digest are not used.
    """

    fresh: Callable[[], F]
    restore: Callable[[bytes], F]
    fingerprint: str


def restored(restore: Callable[[bytes], F], pieces: Iterable[bytes]) -> F:
    """Return the state in a snapshot, and exclude its objects from garbage collection, because they are never freed.

    With collections meanwhile, a large state takes five times as long.

    Args:
        restore: Returns the state, given its joined bytes.
        pieces: The pieces of the snapshot.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return restore(b"".join(pieces))
    finally:
        gc.freeze()
        if collects:
            gc.enable()
