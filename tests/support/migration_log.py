"""The log of a stack on which pods migrate while processes are killed, and what must hold in it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.nodestate import PodsStarted, PodsStopped
from koordcore.events.objects import CustomObjectObserved, plural_of
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeAgentState, NodeLedger, PodSpecState, PodState
from koordcore.state.migrations import MigrationState
from koordctl.access.log import LogTrouble, open_log
from koordctl.objects.reservations import reservations_in


class MigrationLog:
    """The log as far as it was read, folded, with the audit of what must hold at each position.

    Args:
        var: Folder of the stack.
        fewest_available: Smallest number of pods that run at any position after an eviction.
    """

    def __init__(self, var: Path, *, fewest_available: int) -> None:
        self.state = ClusterState()
        self.seen: list[tuple[StoredEvent, Event]] = []
        self._var = var
        self._fewest_available = fewest_available

    async def read(self) -> Sequence[tuple[StoredEvent, Event]]:
        """Read on, and return the new events; none while the log is away."""
        known = len(self.seen)
        with contextlib.suppress(LogTrouble):
            async with open_log(self._var) as log:
                head = await log.bus.events.head()
                async for batch in log.bus.events.history(self.state.position, head.last_seq):
                    for stored in batch:
                        event = self.state.apply(stored)
                        if event is not None:
                            self.seen.append((stored, event))
        return self.seen[known:]

    def running(self) -> set[str]:
        """Return the uids of the pods that agents run now, those included that have left and were not stopped yet."""
        return {uid for agent in self.state.of_kind(NodeAgentState).values() for uid in agent.running}

    def is_settled(self, pods: int) -> bool:
        """Return whether so many pods run, all jobs and Reservations have ended, and only these pods hold resources."""
        jobs = self.state.of_kind(MigrationState).values()
        return (
            len(self.running()) == pods
            and all(job.ended_at for job in jobs)
            and all(view.phase in ("Succeeded", "Failed") for view in reservations_in(self.state))
            and len(self.held()) == pods
        )

    def held(self) -> list[str]:
        """Return the uids that hold resources of nodes: those of pods and of Reservations."""
        return [pod.uid for ledger in self.state.of_kind(NodeLedger).values() for pod in ledger.pods.values()]

    def is_empty(self, node: str) -> bool:
        """Return whether no pod is placed on a node."""
        return not any(pod.node == node for pod in self.state.of_kind(PodState).values())

    def check(self) -> None:
        """Check each position of the log.

        A pod is evicted once, and only after the Reservation of its job was placed. At no eviction are
        fewer pods available than the workload allows.
        """
        uid_of_job: dict[str, str] = {}
        placed: set[str] = set()
        evicted: set[str] = set()
        ready: set[str] = set()
        for stored, event in self.seen:
            match event:
                case CustomObjectObserved() if plural_of(stored.ref.id) == "podmigrationjobs":
                    meta = event.object["metadata"]
                    uid_of_job[meta["name"]] = meta["uid"]
                case PodPlaced():
                    placed.add(event.name)
                case PodsStarted():
                    ready |= set(event.pods)
                case PodsStopped():
                    ready -= set(event.pods)
                case PodReleased():
                    ready.discard(stored.ref.id)
                case PodEvictionRequested():
                    assert event.job, event
                    assert uid_of_job[event.job] in placed, "evicted before its Reservation was placed"
                    assert stored.ref.id not in evicted, "evicted twice"
                    evicted.add(stored.ref.id)
                    ready.discard(stored.ref.id)
                    assert len(ready) >= self._fewest_available, f"only {len(ready)} pods are available"
                case PodEvictionFailed() | PodEvictionWithdrawn():
                    evicted.discard(stored.ref.id)
                    ready.add(stored.ref.id)
                case _:
                    pass

    def check_the_end(self) -> None:
        """Check that no pod is lost or doubled, and that nothing but these pods holds resources of a node."""
        running = self.running()
        assert running == set(self.state.of_kind(PodSpecState))
        assert sorted(self.held()) == sorted(running), "resources are held by somebody else, or twice"
