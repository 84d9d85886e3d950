"""Types of a fold: the state to which events are applied, how the first state is created, and why a fold halts."""

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from koordcore.events.envelope import StoredEvent


class Foldable(Protocol):
    """A state to which the events of the log are applied in order, for example `koordcore.state.ClusterState`."""

    def apply(self, stored: StoredEvent) -> object:
        """Apply one event to the state.

        Returns:
            What a listener needs to know about the event. `FoldRunner` passes it to its `on_batch`.

        Raises:
            Exception: The event cannot be applied. The state must then be unchanged.
        """
        ...

    def skip(self, seq: int) -> None:
        """Set the position of the state to `seq` without applying the event at this position."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Return the state at the time of the call as bytes, in pieces. The caller may apply events before it has read
        all pieces. The pieces do not contain these events.
        """
        ...


F = TypeVar("F", bound=Foldable)


class Folded(NamedTuple):
    """One event that a `FoldRunner` has applied to its state, and what the state's `apply` returned for it."""

    stored: StoredEvent
    result: object  # Return value of `Foldable.apply`, for `ClusterState` the decoded event


class Halt(NamedTuple):
    """The halt of a fold: the event that the fold cannot decode or apply, and the reason."""

    seq: int  # Sequence of this event. The state contains everything before it.
    reason: str  # Error, one sentence

    def __str__(self) -> str:
        return f"halted before event {self.seq}: {self.reason}"


class FoldSource(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """The functions that create the first state of a fold: empty, or from a snapshot."""

    fresh: Callable[[], F]  # Returns the empty state
    restore: Callable[[bytes], F]  # Returns the state in a snapshot, given its joined bytes
    fingerprint: str  # Digest of the schema of the state. Snapshots with another digest are not used.


def restored(restore: Callable[[bytes], F], pieces: Iterable[bytes]) -> F:
    """Return the state in a snapshot, without garbage collections meanwhile. Each collection would look at all objects
    of the growing state, so that a large state takes five times as long. All objects that the process has then are also
    excluded from later collections, because most of them live as long as the state. `restore`: returns the state, given
    its joined bytes.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return restore(b"".join(pieces))
    finally:
        gc.freeze()
        if collects:
            gc.enable()
