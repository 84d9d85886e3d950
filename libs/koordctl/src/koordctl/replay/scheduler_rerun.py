"""The engine of `koord replay --rerun-scheduler`: it decides placements again with another configuration.

Nothing is written. The log is read, from the newest snapshot before the window that has the state of the whole log.
Two states live in this process: the recorded one and that of the re-run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from koord_scheduler.configuration import installed_makers, load_configuration
from koord_scheduler.domain.cluster.equivalence_classes import scheduler_name_of
from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.folding.log import fold, skip
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.packing import Packing, packing_of
from koord_scheduler.domain.replay.recompute import NotRecomputable, Recomputed, recompute
from koord_scheduler.domain.replay.recording import Nomination, recording_of
from koord_scheduler.domain.replay.snapshot import load_state, may_start_what_if, schema_fingerprint
from koord_scheduler.domain.replay.what_if import Fate, WhatIf
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.folds.skips import recorded_skips
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.events.pod import PodPlaced
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog, ObservationLog
from koordcore.ports.snapshots import Snapshot, SnapshotStore
from koordcore.protocol.objects import Pod

from koordctl.access.folding import BATCH, everything_kept
from koordctl.access.log import LogTrouble

FOLD = "scheduler"
"""Name under which the scheduler saves its snapshots."""
ALIASES = ("default-scheduler",)
"""The first profile serves pods with these scheduler names, as the service does by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    begin: int
    end: int
    started: int  # Position of the snapshot from which the run started; 0: it started at the first fact
    recorded: int  # Number of recorded placements in the window
    decided: int  # Number of placements in the re-run
    reports: int  # Number of usage reports that are still retained
    fates: list[Fate]  # Pods that have a node at the end, recorded or in the re-run
    preempted: list[str]  # Recorded victims of preemption, as "namespace/name"
    evicted: list[str]  # Victims in the re-run
    nominations: list[Nomination]  # Recorded nominations with their victims
    nominated: list[Nomination]  # Nominations of the re-run
    before: Packing  # Use of the nodes at the end, as recorded
    after: Packing  # Use of the nodes at the end of the re-run
    # Scheduler name that no tried profile has -> number of recorded pods that ask for it.
    unserved: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            f"no profile serves the pods of scheduler {name}: {count:,} {'pod' if count == 1 else 'pods'}"
            for name, count in sorted(self.unserved.items())
        )

    @property
    def elsewhere(self) -> list[Fate]:
        """Pods that the re-run places on another node than the recording."""
        return [fate for fate in self.fates if fate.recorded and fate.rerun and fate.recorded != fate.rerun]

    @property
    def not_placed(self) -> list[Fate]:
        """Pods that have a node in the recording and none in the re-run."""
        return [fate for fate in self.fates if not fate.rerun]

    @property
    def newly_placed(self) -> list[Fate]:
        """Pods that have no node in the recording and one in the re-run."""
        return [fate for fate in self.fates if not fate.recorded]

    @property
    def newly_preempted(self) -> list[str]:
        """Pods that were not preempted and that the re-run preempts."""
        return sorted(set(self.evicted) - set(self.preempted))

    @property
    def spared(self) -> list[str]:
        """Pods that were preempted and that the re-run does not preempt."""
        return sorted(set(self.preempted) - set(self.evicted))

    def document(self) -> dict[str, Any]:
        return {
            "from": self.begin,
            "to": self.end,
            "startedAt": self.started,
            "placementsRecorded": self.recorded,
            "placementsRerun": self.decided,
            "loadReports": self.reports,
            "warnings": list(self.warnings),
            "elsewhere": [asdict(fate) for fate in self.elsewhere],
            "pendingInsteadOfPlaced": [asdict(fate) for fate in self.not_placed],
            "placedInsteadOfPending": [asdict(fate) for fate in self.newly_placed],
            "preemptedRecorded": self.preempted,
            "preemptedRerun": self.evicted,
            "nominationsRecorded": [nomination._asdict() for nomination in self.nominations],
            "nominationsRerun": [nomination._asdict() for nomination in self.nominated],
            "before": asdict(self.before),
            "after": asdict(self.after),
        }


async def compare(
    log: EventLog,
    observations: ObservationLog,
    explanations: ObservationLog,
    snapshots: SnapshotStore,
    configuration: EffectiveConfiguration,
    begin: int,
    end: int,
    progress: Callable[[int], None],
) -> Comparison:
    """Rebuild the scheduler's state at `begin`, decide placements again up to `end`, and compare with the recording.

    Args:
        snapshots: The scheduler's snapshots, from which the run starts if one fits.
        progress: Called with positions from 0 to 2 * end, because every event is folded into both states.

    Raises:
        LogTrouble: An event cannot be decoded and no operator has skipped it. The message names the event.
    """
    saved = await saved_state(snapshots, configuration, begin)
    recorded_state, what_if = state_of(configuration, saved), WhatIf(state_of(configuration, saved))
    started = recorded_state.log.position
    # A batch earlier, from which the re-run learns the time and whether the snapshot is inside an append.
    after = min(started, max(started - BATCH, (await log.head()).first_seq - 1))
    skipped = await recorded_skips(log, FOLD, halted_at=after + 1)
    window: list[StoredEvent] = []
    specs: dict[str, Pod | None] = {}
    try:
        async for batch in log.history(after, end, batch=BATCH):
            for stored in batch:
                if stored.seq in skipped:
                    skip(recorded_state, stored.seq)
                    continue
                if stored.seq > begin and not window:
                    specs = {uid: pod.pod for uid, pod in recorded_state.pods.items()}
                fold(recorded_state, stored)
                if stored.seq <= begin:
                    what_if.before(stored)
                else:
                    window.append(stored)
            progress(batch[-1].seq)
        events = what_if.window(window)
        recording = recording_of(events, await everything_kept(explanations))
        reports = await everything_kept(observations)
        what_if.rerun(events, recording, reports, lambda position: progress(end + position))
        tried = {*recording.placed, *(attempt.uid for attempt in recording.attempts)}
        unserved = _unserved(specs, window, what_if.state.frameworks, tried - what_if.placed.keys())
    except UnreadableEvent as error:
        raise LogTrouble(f"{error}; a recorded skip lets the fold continue: koord bus skip --help") from error
    return Comparison(
        begin=begin,
        end=end,
        started=started,
        recorded=recording.decided,
        decided=what_if.decided,
        reports=len(reports),
        fates=what_if.fates(),
        preempted=_named(recording.preempted),
        evicted=_named(what_if.evicted),
        nominations=recording.nominated,
        nominated=what_if.nominated,
        before=packing_of(recorded_state),
        after=packing_of(what_if.state),
        unserved=unserved,
    )


async def saved_state(snapshots: SnapshotStore, configuration: EffectiveConfiguration, begin: int) -> bytes | None:
    """Return the newest snapshot up to `begin` that is equal to the fold of the whole log; None if there is none.

    A snapshot fits a configuration if it has the state of all its plugins.
    """
    at_most, fingerprints = begin, _fitting(configuration)
    try:
        while found := await _newest(snapshots, fingerprints, at_most):
            data = b"".join(found.state)
            if may_start_what_if(state_of(configuration, data), begin):
                return data
            at_most = found.seq - 1
    except NoAnswer:  # a server that was set up before the operator might read them does not answer
        pass
    return None


async def _newest(snapshots: SnapshotStore, fingerprints: Iterable[str], at_most: int) -> Snapshot | None:
    """The newest snapshot up to a position that has one of the fingerprints."""
    found = [await snapshots.newest(FOLD, schema_fingerprint=each, at_most=at_most) for each in fingerprints]
    return max((each for each in found if each is not None), key=lambda each: each.seq, default=None)


def _fitting(configuration: EffectiveConfiguration) -> list[str]:
    """The fingerprints of the snapshots that fit a configuration.

    They are those of its own plugins, and those of the default configuration if it has the same plugins and more: the
    state of a plugin that a scheduler does not have is not read.
    """
    own, default = (empty_state(each).frameworks for each in (configuration, load_configuration(None)))
    folding = {frozenset(own.folding), frozenset(default.folding)}
    return [schema_fingerprint(own.cluster, plugins) for plugins in folding if plugins >= own.folding.keys()]


def state_of(configuration: EffectiveConfiguration, saved: bytes | None) -> SchedulerState:
    """The state of a scheduler of this configuration at a snapshot; None: before the first event."""
    state = empty_state(configuration)
    if saved is not None:
        load_state(state, saved)
    return state


def _unserved(
    specs: Mapping[str, Pod | None], window: Iterable[StoredEvent], frameworks: Frameworks, uids: Set[str]
) -> Counter[str]:
    """The scheduler names that no profile has, each with the number of pods that ask for it.

    Args:
        specs: Uid -> pod at the beginning of the window; None: it was deleted.
        frameworks: The tried profiles.
        uids: The pods to look at.

    Raises:
        UnreadableEvent: An event cannot be read.
    """
    found = {uid: pod for uid in uids if (pod := specs.get(uid)) is not None}
    for stored in window:
        if stored.ref.kind == "podspec" and stored.ref.id in uids:
            event = CATALOGUE.read(stored)
            if isinstance(event, PodSpecAdded | PodSpecChanged):
                found[stored.ref.id] = event.object
    return Counter(scheduler_name_of(pod) for pod in found.values() if frameworks.of(pod) is None)


async def recomputed(
    log: EventLog, observations: ObservationLog, configuration: EffectiveConfiguration, seq: int
) -> Recomputed | NotRecomputable:
    """Decide the recorded placement at position `seq` again from the log alone, and return the result.

    Raises:
        LogTrouble: There is no placement at this position, or an event cannot be decoded.
    """
    head = await log.head()
    events = [stored async for batch in log.history(0, head.last_seq, batch=BATCH) for stored in batch]
    if not any(stored.seq == seq and stored.type == PodPlaced.__name__ for stored in events):
        raise LogTrouble(f"there is no placement at position {seq}: `koord events -k pod --since 1` lists them")
    try:
        return recompute(empty_state(configuration), events, await everything_kept(observations), seq)
    except UnreadableEvent as error:
        raise LogTrouble(str(error)) from error


def _named(pods: Mapping[str, tuple[str, str]]) -> list[str]:
    return sorted(f"{namespace}/{name}" for namespace, name in pods.values())


def empty_state(configuration: EffectiveConfiguration) -> SchedulerState:
    """The state before the first event."""
    frameworks = frameworks_of(configuration, more=installed_makers(), aliases=ALIASES)
    return SchedulerState(
        frameworks,
        Settings(
            initial_backoff_seconds=configuration.pod_initial_backoff_seconds,
            max_backoff_seconds=configuration.pod_max_backoff_seconds,
        ),
    )
