"""A window of the log with the manager's decisions taken anew: what `koord replay --rerun-manager` compares.

Nothing is written: the log is read once, and one state lives in this process, with what would be said beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.config_checks.cautions import cautions
from koord_manager.domain.config_checks.slo_config import check_slo_config
from koord_manager.domain.recommender.book import CHECKPOINT_FOLD, book_fingerprint
from koord_manager.domain.recommender.settings import RecommenderSettings, settings_told
from koord_manager.domain.what_if.admission import AdmissionTried
from koord_manager.domain.what_if.recorded_flags import RecordedFlags
from koord_manager.domain.what_if.run import ManagerWhatIf
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.management.recommendation import RecommendationComputed
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog
from koordcore.ports.observations import ObservationLog
from koordcore.ports.snapshots import SnapshotStore
from koordcore.protocol.manifests import read_manifest
from koordcore.protocol.objects import ConfigMap
from koordcore.values.invalid import InvalidInput

from koordctl.access.folding import BATCH, everything_kept, skipped_positions
from koordctl.access.log import LogTrouble
from koordctl.what_if.admission import AdmissionComparison, compare_admission, kept_verdicts
from koordctl.what_if.nodes import NodeComparison, compare_nodes
from koordctl.what_if.recommendations import RecommendationComparison, compare_recommendations


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is decided anew, and how.

    begin, end   positions; the window is what lies behind `begin` up to `end`
    chosen       data of the ConfigMap to try; None: what was in force
    settings     of the recommender, to try; None: those that were in force
    names        of the ConfigMap that the manager took its configuration from; None: as by default
    told         flags of the recorded manager; None: as by default
    admitting    colocation profiles and gates to try; None: those that were in force
    remarks      what is worth a look in the files that are tried
    """

    begin: int
    end: int
    chosen: Mapping[str, str] | None = None
    settings: RecommenderSettings | None = None
    names: ConfigNames | None = None
    told: RecordedFlags | None = None
    admitting: AdmissionTried | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerComparison:
    """What was recorded and what would have been.

    reports    usage reports of nodes that were still kept
    notes      what could not be looked at
    """

    asked: Question
    reports: int
    notes: tuple[str, ...]
    nodes: NodeComparison
    recommendations: RecommendationComparison
    admission: AdmissionComparison

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is worth a look in what was tried: `field: sentence`."""
        return (*self.asked.remarks, *cautions(self.asked.chosen or {}))

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "from": self.asked.begin,
            "to": self.asked.end,
            "loadReports": self.reports,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            **self.nodes.document(),
            "recommendations": self.recommendations.document(),
            "admission": self.admission.document(),
        }


def read_chosen(documents: list[object]) -> dict[str, str]:
    """The data of the one ConfigMap among the documents of a file.

    raises    InvalidInput, InvalidManifest: with the field, the rule and the value of what cannot be taken
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
    verdicts: ObservationLog | None = None,
) -> ManagerComparison:
    """Fold to the beginning of the window, decide what lies in it anew.

    verdicts    on admission; None: there are none
    snapshots   with the recommender's checkpoints; None: what it learned comes from the reports alone
    progress    called with positions, from 0 to the end
    raises      LogTrouble naming an event that cannot be read and that nobody said to skip
    """
    skipped = await skipped_positions(log)
    reports = await everything_kept(observations)
    told, since = await kept_verdicts(verdicts) if verdicts is not None else ([], "")
    until = await _next(log, asked.end)
    first = await _first_known(log, asked)
    checkpoint, notes = None, ()
    try:
        if snapshots is not None:
            checkpoint = await _checkpoint(snapshots, first, reports, until)
    except TimeoutError:  # a server that was set up before the operator might read them does not answer
        notes = ("the recommender's checkpoints cannot be read: its recommendations rest on the kept reports alone",)
    what_if = ManagerWhatIf(
        ManagerView(config_names=asked.names),
        reports,
        chosen=asked.chosen,
        told=asked.told,
        settings=asked.settings,
        checkpoint=checkpoint,
        first=settings_told(first.settings) if first is not None else None,
        verdicts=told,
        admitting=asked.admitting,
        verdicts_since=since,
    )
    begun = False
    try:
        async for batch in log.history(0, asked.end, batch=BATCH):
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
        raise LogTrouble(f"{error}; a recorded skip passes over it: koord bus skip --help") from error
    return ManagerComparison(
        asked=asked,
        reports=len(reports),
        notes=notes,
        nodes=compare_nodes(what_if.nodes),
        recommendations=compare_recommendations(what_if),
        admission=compare_admission(what_if.admission),
    )


async def _next(log: EventLog, position: int) -> StoredEvent | None:
    """The event behind a position; None: there is none."""
    if (await log.head()).last_seq <= position:
        return None
    following = [stored async for batch in log.history(position, position + 1) for stored in batch]
    return following[0] if following else None


async def _checkpoint(
    snapshots: SnapshotStore,
    first: RecommendationComputed | None,
    reports: list[StoredEvent],
    until: StoredEvent | None,
) -> bytes | None:
    """What the recommender had learned before its first decision of the window, or as early as is known.

    None while every report is still kept, and when nothing else is.
    """
    if not reports or len(reports) == reports[-1].seq:
        return None
    told = [one.seq for one in reports if until is None or one.occurred_at <= until.occurred_at]
    known = first.observed_to if first is not None else max(told, default=0)
    fingerprint = book_fingerprint()
    found = await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=fingerprint, at_most=known)
    for seq in await snapshots.sequences(CHECKPOINT_FOLD) if found is None else ():
        found = found or await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=fingerprint, at_most=seq)
    return b"".join(found.state) if found is not None else None


async def _first_known(log: EventLog, asked: Question) -> RecommendationComputed | None:
    """The first recommendation of the window: what it knew, and by which settings it was made."""
    async for batch in log.history(asked.begin, asked.end, kinds=["recommendation"]):
        for stored in batch:
            event = CATALOGUE.read(stored)
            if isinstance(event, RecommendationComputed):
                return event
    return None
