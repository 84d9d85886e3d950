"""What a plugin follows outside the cycle."""

from typing import Protocol, runtime_checkable

from koordcore.events.envelope import Event, StoredEvent

from koord_scheduler.domain.framework.plugin import Plugin


@runtime_checkable
class FoldingPlugin(Plugin, Protocol):
    """Keeps a state of its own, folded from the log and kept in the scheduler's snapshots.

    Attributes:
        kinds: Kinds of aggregates whose events it takes (`podspec`, `nodespec`, `config`, `customspec`, ...).
    """

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of aggregates that it follows."""
        ...

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Take one event of the log: each once, in order; a valid event must not fail.

        Returns:
            Whether waiting pods may have better luck now, on any node.
        """
        ...

    def facts(self) -> bytes:
        """Return the state, for a snapshot."""
        ...

    def restore(self, facts: bytes) -> None:
        """Begin with this state; called once, before any event."""
        ...
