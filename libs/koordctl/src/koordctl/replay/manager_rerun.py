"""The engine of `koord replay --rerun-manager`: it decides a window of the log again with the manager's rules.

The log is read once and not written. The recorded state and the decisions of the re-run exist only in this process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from koord_manager.domain.admission.config_maps import cautions, check_slo_config
from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.book import CHECKPOINT_FOLD, book_fingerprint
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings, settings_from
from koord_manager.domain.what_if.admission import AdmissionTried
from koord_manager.domain.what_if.recording import RecordedFlags, moment_of
from koord_manager.domain.what_if.run import ManagerWhatIf
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.folds.skips import recorded_skips
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.recommendation import RecommendationComputed
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog, ObservationLog
from koordcore.ports.snapshots import Snapshot, SnapshotStore
from koordcore.protocol.manifests import read_manifest
from koordcore.protocol.objects import ConfigMap
from koordcore.values.invalid import InvalidInput

from koordctl.access.folding import BATCH, CLUSTER_FOLD, everything_kept, saved_cluster
from koordctl.access.log import LogTrouble
from koordctl.replay.admission import AdmissionComparison, compare_admission, retained_decisions
from koordctl.replay.nodes import NodeComparison, compare_nodes
from koordctl.replay.recommendations import RecommendationComparison, compare_recommendations

REMEMBERED: Final = timedelta(minutes=10)
"""The manager knows evictions of this time, which no snapshot has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    begin: int
    end: int
    chosen: Mapping[str, str] | None = None  # Data of the ConfigMap to try, or None for the recorded one
    settings: RecommenderSettings | None = None  # Settings of the recommender to try, or None for the recorded ones
    names: ConfigNames | None = None  # Names of the ConfigMaps that the recorded manager read, or None for the defaults
    flags: RecordedFlags | None = None  # Flags of the recorded manager, or None for the defaults
    admitting: AdmissionTried | None = None  # Colocation profiles and gates to try, or None for the recorded ones
    remarks: tuple[str, ...] = ()  # Warnings about the files that are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerComparison:
    asked: Question  # Window and settings of the re-run
    started: int  # Position of the snapshot from which the run started; 0: it started at the first fact
    reports: int  # Number of usage reports that are still retained
    notes: tuple[str, ...]  # Sentences about decisions that could not be compared
    nodes: NodeComparison  # Decisions about nodes
    recommendations: RecommendationComparison
    admission: AdmissionComparison  # Decisions of admission

    @property
    def warnings(self) -> tuple[str, ...]:
        """About the tried configuration, as `field: sentence`."""
        return (*self.asked.remarks, *cautions(self.asked.chosen or {}))

    def document(self) -> dict[str, Any]:
        return {
            "from": self.asked.begin,
            "to": self.asked.end,
            "startedAt": self.started,
            "loadReports": self.reports,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            **self.nodes.document(),
            "recommendations": self.recommendations.document(),
            "admission": self.admission.document(),
        }


def read_chosen(documents: list[object]) -> dict[str, str]:
    """The data of the only ConfigMap among the documents of a file.

    Raises:
        InvalidInput, InvalidManifest: A value is not valid. The error names the field, the rule and the value.
    """
    maps = [manifest.object for manifest in map(read_manifest, documents) if isinstance(manifest.object, ConfigMap)]
    if len(maps) != 1 or len(documents) != 1:
        raise InvalidInput("one ConfigMap with the keys of slo-controller-config", f"{len(documents)} documents")
    for violation in check_slo_config(maps[0].data, {}, []):
        raise violation.at("data")
    return maps[0].data


async def compare(
    log: EventLog,
    observations: ObservationLog,
    snapshots: SnapshotStore | None,
    asked: Question,
    progress: Callable[[int], None],
    explanations: ObservationLog | None = None,
) -> ManagerComparison:
    """Rebuild the state before the window, decide the window again, and compare with the recording.

    Args:
        snapshots: The manager's snapshots, from which the run starts if one fits, and the recommender's checkpoints;
            None: it starts at the first fact, and learns from the retained reports alone.
        progress: Called with positions, ascending up to the end.
        explanations: The stream with the decisions of admission; None: there are no such decisions.

    Raises:
        LogTrouble: An event cannot be decoded and no operator has skipped it. The message names the event.
    """
    reports = await everything_kept(observations)
    flags, since = await retained_decisions(explanations) if explanations is not None else ([], "")
    until = await _next(log, asked.end)
    first = await _first_known(log, asked)
    view, checkpoint, notes = ManagerView(config_names=asked.names), None, ()
    try:
        if snapshots is not None:
            checkpoint = await _checkpoint(snapshots, first, reports, until)
            learned = 0 if checkpoint is None or asked.settings is not None else checkpoint.seq
            unknown = next((one for one in reports if one.seq > learned), None)
            view = await _view_before(log, snapshots, asked, unknown)
    except NoAnswer:  # a server that was set up before the operator might read them does not answer
        checkpoint = None
        notes = ("the recommender's checkpoints cannot be read: recommendations use the retained reports only",)
    started = view.state.position
    skipped = await recorded_skips(log, CLUSTER_FOLD, halted_at=started + 1)
    what_if = ManagerWhatIf(
        view,
        reports,
        chosen=asked.chosen,
        flags=asked.flags,
        settings=asked.settings,
        checkpoint=b"".join(checkpoint.state) if checkpoint is not None else None,
        first=settings_from(first.settings) if first is not None else None,
        admission_decisions=flags,
        admitting=asked.admitting,
        decisions_since=since,
    )
    begun = False
    try:
        async for batch in log.history(started, asked.end, batch=BATCH):
            for stored in batch:
                if not begun and stored.seq > asked.begin:
                    what_if.begin()
                    begun = True
                if stored.seq in skipped:
                    if not begun:
                        what_if.view.state.skip(stored.seq)
                elif begun:
                    what_if.see(stored)
                else:
                    what_if.before(stored)
            progress(what_if.view.state.position)
        if not begun:
            what_if.begin()
        what_if.end(until, progress)
    except UnreadableEvent as error:
        raise LogTrouble(f"{error}; a recorded skip lets the fold continue: koord bus skip --help") from error
    return ManagerComparison(
        asked=asked,
        started=started,
        reports=len(reports),
        notes=notes,
        nodes=compare_nodes(what_if.nodes),
        recommendations=compare_recommendations(what_if),
        admission=compare_admission(what_if.admission),
    )


async def _next(log: EventLog, position: int) -> StoredEvent | None:
    """The first event after a position, or None if the log has none."""
    if (await log.head()).last_seq <= position:
        return None
    following = [stored async for batch in log.history(position, position + 1) for stored in batch]
    return following[0] if following else None


async def _view_before(
    log: EventLog, snapshots: SnapshotStore, asked: Question, unknown: StoredEvent | None
) -> ManagerView:
    """What the manager knew at the newest snapshot from which the run gives the result of a run from the start.

    The snapshot must be older than `unknown`, the first report that the recommender still learns: it learns a report
    with the pods of that moment. If no snapshot fits, the view is empty.
    """
    window, at_most = await _next(log, asked.begin), asked.begin
    while window is not None and (state := await saved_cluster(snapshots, at_most)) is not None:
        after = await _next(log, state.position)
        if (
            after is not None
            and _time(after) + REMEMBERED <= _time(window)
            and (unknown is None or moment_of(after) < moment_of(unknown))
        ):
            return ManagerView(state, asked.names)
        at_most = state.position - 1
    return ManagerView(config_names=asked.names)


def _time(stored: StoredEvent) -> datetime:
    return datetime.fromisoformat(stored.occurred_at)


async def _checkpoint(
    snapshots: SnapshotStore,
    first: RecommendationComputed | None,
    reports: list[StoredEvent],
    until: StoredEvent | None,
) -> Snapshot | None:
    """The checkpoint from which the re-run of the recommender starts, or None to learn from the reports alone.

    This is the newest checkpoint before the recommender's first decision in the window, else the oldest one. There is
    none while every report is retained, or if no checkpoint exists.
    """
    if not reports or len(reports) == reports[-1].seq:
        return None
    flags = [one.seq for one in reports if until is None or one.occurred_at <= until.occurred_at]
    known = first.observed_to if first is not None else max(flags, default=0)
    fingerprint = book_fingerprint()
    found = await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=fingerprint, at_most=known)
    for seq in await snapshots.sequences(CHECKPOINT_FOLD) if found is None else ():
        found = found or await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=fingerprint, at_most=seq)
    return found


async def _first_known(log: EventLog, asked: Question) -> RecommendationComputed | None:
    """The first recommendation in the window; it names the settings and the last report that were used."""
    async for batch in log.history(asked.begin, asked.end, kinds=["recommendation"]):
        for stored in batch:
            event = CATALOGUE.read(stored)
            if isinstance(event, RecommendationComputed):
                return event
    return None
