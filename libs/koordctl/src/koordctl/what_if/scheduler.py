"""The engine of `koord replay --rerun-scheduler`: it decides placements again with another configuration.

Nothing is written. The log is read. Two states live in this process: the recorded one and that of the re-run.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from koord_scheduler.configuration import installed_makers
from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.folding.log import fold, skip
from koord_scheduler.domain.pods.equivalence_classes import scheduler_name_of
from koord_scheduler.domain.replay.packing import Packing, packing_of
from koord_scheduler.domain.replay.recompute import NotRecomputable, Recomputed, recompute
from koord_scheduler.domain.replay.recording import Nomination, recording_of
from koord_scheduler.domain.replay.what_if import Fate, WhatIf
from koord_scheduler.domain.runtime.frameworks import Frameworks
from koord_scheduler.domain.runtime.profiles import frameworks_of
from koord_scheduler.domain.state.known_state import Settings
from koord_scheduler.domain.state.state import SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecChanged
from koordcore.events.registry import UnreadableEvent
from koordcore.events.scheduling.pod import PodPlaced
from koordcore.ports.eventlog import EventLog
from koordcore.ports.observations import ObservationLog

from koordctl.access.log import BATCH, LogTrouble, everything_kept, skipped_positions

ALIASES = ("default-scheduler",)
"""The first profile serves pods with these scheduler names, as the service does by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The recorded placements compared with the placements of the re-run.

    Attributes:
        begin: The window starts behind this position.
        end: Last position of the window.
        recorded: Number of recorded placements in the window.
        decided: Number of placements in the re-run.
        reports: Number of usage reports that are still retained.
        fates: Pods that have a node at the end, recorded or in the re-run.
        preempted: Recorded victims of preemption, as "namespace/name".
        evicted: Victims in the re-run.
        nominations: Recorded nominations with their victims.
        nominated: Nominations of the re-run.
        before: Use of the nodes at the end, as recorded.
        after: Use of the nodes at the end of the re-run.
        unserved: Scheduler name that no tried profile has -> number of recorded pods that ask for it.
    """

    begin: int
    end: int
    recorded: int
    decided: int
    reports: int
    fates: list[Fate]
    preempted: list[str]
    evicted: list[str]
    nominations: list[Nomination]
    nominated: list[Nomination]
    before: Packing
    after: Packing
    unserved: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the tried configuration."""
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
        """Return the comparison as JSON values."""
        return {
            "from": self.begin,
            "to": self.end,
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
    configuration: EffectiveConfiguration,
    begin: int,
    end: int,
    progress: Callable[[int], None],
) -> Comparison:
    """Rebuild the scheduler's state at `begin`, decide placements again up to `end`, and compare with the recording.

    Args:
        log: The stream of facts.
        observations: The stream of usage reports.
        explanations: The stream of explanations.
        configuration: The configuration to try.
        begin: The window starts behind this position.
        end: Last position of the window.
        progress: Called with positions from 0 to 2 * end, because every event is folded into both states.

    Raises:
        LogTrouble: An event cannot be decoded and no operator has skipped it. The message names the event.
    """
    skipped = await skipped_positions(log)
    recorded_state, what_if = empty_state(configuration), WhatIf(empty_state(configuration))
    window: list[StoredEvent] = []
    try:
        async for batch in log.history(0, end, batch=BATCH):
            for stored in batch:
                if stored.seq in skipped:
                    skip(recorded_state, stored.seq)
                    continue
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
        unserved = await _unserved(log, what_if.state.frameworks, tried - what_if.placed.keys(), end, skipped)
    except UnreadableEvent as error:
        raise LogTrouble(f"{error}; a recorded skip lets the fold continue: koord bus skip --help") from error
    return Comparison(
        begin=begin,
        end=end,
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


async def _unserved(
    log: EventLog, frameworks: Frameworks, uids: Set[str], end: int, skipped: Container[int]
) -> Counter[str]:
    """Return the scheduler names that no profile has, each with the number of pods that ask for it.

    Raises:
        UnreadableEvent: An event cannot be read.
    """
    found: dict[str, str] = {}
    if not uids:
        return Counter()
    async for batch in log.history(0, end, kinds=["podspec"], batch=BATCH):
        for stored in batch:
            if stored.ref.id not in uids or stored.seq in skipped:
                continue
            event = CATALOGUE.read(stored)
            if isinstance(event, PodSpecAdded | PodSpecChanged) and frameworks.of(event.object) is None:
                found[stored.ref.id] = scheduler_name_of(event.object)
    return Counter(found.values())


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
    """Return the state of a scheduler of this configuration before the first event."""
    frameworks = frameworks_of(configuration, more=installed_makers(), aliases=ALIASES)
    return SchedulerState(
        frameworks,
        Settings(
            initial_backoff_seconds=configuration.pod_initial_backoff_seconds,
            max_backoff_seconds=configuration.pod_max_backoff_seconds,
        ),
    )
