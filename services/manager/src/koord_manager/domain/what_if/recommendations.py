"""What containers would be recommended under other settings of the recommender, learned from the log's own samples.

A recommendation is made where the recorded one was: on the facts that it was based on, on the reports that it had taken
in, at its time. What was learned before the reports that are still kept comes from a checkpoint.

source    manager spec, 15
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

import msgspec
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.management.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.state.aggregates import PodSpecState, RecommendationState
from koordcore.state.cluster import evolve
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.recommender.apply import REPLACING, replacement_drafts, why_replace
from koord_manager.domain.recommender.book import RecommenderBook, checkpoint_settings
from koord_manager.domain.recommender.decide import FETCHING, REFRESHED, cause_of, is_confident, said_now
from koord_manager.domain.recommender.settings import DEFAULT_SETTINGS, RecommenderSettings, settings_from
from koord_manager.domain.recommender.targets import Wanted
from koord_manager.domain.what_if.reports import Moment, Report, moment_of
from koord_manager.domain.what_if.tally import Tally

_MATCHING: Final = frozenset(("podspec", "workloadspec", "customspec"))
"""Kinds of facts that can change which pods a Recommendation looks at."""
_EVERYTHING: Final = 1 << 62

Pods = list[tuple[str, PodSpecState]]


@dataclass(frozen=True, slots=True)
class RecommendationFate:
    """A Recommendation that would say something else in the end, or have other pods created anew.

    id          `<ns>=<name>`
    outdated    live pods that would be created anew, one after the other: as recorded, and here
    """

    id: str
    recorded: RecommendationState | None
    anew: RecommendationState | None
    outdated: tuple[int, int]


class RecommendationDecisions:
    """What is recommended in one run.

    view      of the recording; whoever drives the run folds it
    in_force  settings of the recording, as last named
    anew      id of a Recommendation -> what it would say
    tally     of the window: recommendations, and pods that were asked to leave for one
    """

    def __init__(
        self,
        view: ManagerView,
        reports: Sequence[Report],
        settings: RecommenderSettings | None = None,
        checkpoint: bytes | None = None,
        first: RecommenderSettings | None = None,
    ) -> None:
        """One run.

        settings      to try; None: those that were in force
        checkpoint    of the recorded recommender's book; None: it learns from the reports alone
        first         settings that were in force in the beginning; None: as the checkpoint says, else as by default
        """
        self.view = view
        self.anew: dict[str, RecommendationState] = {}
        self.tally = Tally()
        self.in_force = first or _learned_by(checkpoint)
        self._tried = settings
        self._book = RecommenderBook(self.settings)
        if checkpoint is not None and not self._learns_anew:
            self._restore(checkpoint)
        self._reports = reports
        self._taken = 0
        self._known_from = self._book.position or (reports[0].seq - 1 if reports else 0)
        self._expected: list[tuple[int, int, int]] = []
        self._pods: dict[str, Pods] | None = None
        self._round: tuple[int, str] | None = None
        self._before_round: dict[str, RecommendationState] = {}
        self._decided: set[str] = set()

    @property
    def settings(self) -> RecommenderSettings:
        """That decide here."""
        return self._tried or self.in_force

    @property
    def _learns_anew(self) -> bool:
        """Whether samples are learned otherwise than they were."""
        return self.settings.learning != self.in_force.learning

    def _recorded_by(self, recorded: RecommendationComputed) -> None:
        """The settings that a recorded recommendation names are in force."""
        self.in_force = settings_from(recorded.settings)
        if self.settings != self._book.settings:
            self._book.use(self.settings)

    # --- the recording -----------------------------------------------------------------------------------------------

    def take_in_reports(self, stored: StoredEvent) -> None:
        """Take in what was reported before a fact, which is folded next; of that only what the next decision knew."""
        self._take_in(moment_of(stored), self._expected[0][2] if self._expected else _EVERYTHING)

    def folded(self, event: Event | None, stored: StoredEvent) -> None:
        """A fact was folded."""
        if stored.ref.kind in _MATCHING:
            self._pods = None
        if isinstance(event, RecommendationComputed) and not self._expected:
            self._recorded_by(event)
            self._take_in(None, event.observed_to)

    def begin(self) -> None:
        """The window begins; what stands is as recorded."""
        self.anew = dict(self.view.state.of_kind(RecommendationState))

    def expect(self, based_on: int, seq: int, event: Event) -> None:
        """A recorded decision that will be taken again; seq: its own position."""
        if isinstance(event, RecommendationComputed):
            heappush(self._expected, (based_on, seq, event.observed_to))

    def stands(self, id_: str, event: Event, stored: StoredEvent) -> None:
        """What a Recommendation says from here on."""
        state = evolve(self.anew.get(id_), event, stored)
        assert isinstance(state, RecommendationState)
        self.anew[id_] = state

    # --- decisions ---------------------------------------------------------------------------------------------------

    def compute(self, stored: StoredEvent, recorded: RecommendationComputed) -> None:
        """A recorded recommendation, made again from what was known then."""
        heappop(self._expected)
        self._recorded_by(recorded)
        self._take_in(None, recorded.observed_to)
        self._enter_round(stored)
        self.tally.recorded += 1
        id_, now = stored.ref.id, datetime.fromisoformat(stored.occurred_at)
        wanted, state = self._book.targets.one(id_), self.anew.get(id_)
        if wanted is None:
            self.stands(id_, recorded, stored)
            return
        found = self._found(wanted, state, recorded, now)
        if found is None:
            self.tally.not_kept += 1
            self.stands(id_, recorded, stored)
            return
        cause = cause_of(wanted, found, state, now)
        if cause is None and self._tried is None:
            return
        self.tally.anew += 1
        found = msgspec.structs.replace(found, cause=cause or REFRESHED)
        self.tally.same += _said(found) == _said(recorded)
        self._decided.add(id_)
        self.stands(id_, found, stored)

    def _found(
        self, wanted: Wanted, state: RecommendationState | None, recorded: RecommendationComputed, now: datetime
    ) -> RecommendationComputed | None:
        """What would be said; None: the samples that were known then are not known here."""
        if recorded.observed_to < self._known_from:
            return None
        found = said_now(self._book, wanted, self._pods_of(wanted), state, now, loading=_was_loading(recorded))
        knows = self._learns_anew or (
            self._book.position <= recorded.observed_to and _samples(found) == _samples(recorded)
        )
        return found if knows else None

    def drop(self, stored: StoredEvent, recorded: RecommendationDropped) -> None:
        """A recorded end of a Recommendation: its object is gone."""
        self._enter_round(stored)
        self.tally.recorded += 1
        if self._book.targets.one(stored.ref.id) is None:
            self.tally.anew += 1
            self.tally.same += 1
        self.stands(stored.ref.id, recorded, stored)

    def replace(self, stored: StoredEvent, recorded: PodEvictionRequested) -> None:
        """A pod that was asked to leave so that its successor gets what is recommended: whether it still would be."""
        self._enter_round(stored)
        self.tally.recorded += 1
        now = datetime.fromisoformat(stored.occurred_at)
        drafts = [
            draft
            for wanted in self._book.targets.of_pod(self.view, stored.ref.id)
            for draft in replacement_drafts(
                self.view, wanted, self._pods_of(wanted), now, self._before_round.get(wanted.id)
            )
        ]
        self.tally.anew += bool(drafts)
        self.tally.same += any((draft.ref, draft.event) == (stored.ref, recorded) for draft in drafts)

    def end(self, until: Moment | None, now: str) -> None:
        """The window ends: where it has no decision that could be taken, what is tried decides on what is known then.

        until    reports that were stored later are not looked at; None: all are
        """
        self._expected = []
        self._take_in(until, _EVERYTHING)
        if self._tried is None:
            return
        self._book.targets.refresh(self.view)
        for wanted in self._book.targets.all():
            state = self.anew.get(wanted.id)
            if wanted.id in self._decided or state is None:
                continue
            at = datetime.fromisoformat(now)
            found = said_now(self._book, wanted, self._pods_of(wanted), state, at)
            if self._learns_anew or _goes_on(state, found):
                self.tally.anew += 1
                ref = AggregateRef("recommendation", wanted.id)
                self.stands(wanted.id, found, StoredEvent(self.view.state.position, ref, {}, b""))

    def fates(self, now: str) -> list[RecommendationFate]:
        """Recommendations that would say something else, or replace other pods, by id."""
        self._book.targets.refresh(self.view)
        recorded = self.view.state.of_kind(RecommendationState)
        found: list[RecommendationFate] = []
        for wanted in self._book.targets.all():
            before, after = recorded.get(wanted.id), self.anew.get(wanted.id)
            outdated = (self._outdated(wanted, before, now), self._outdated(wanted, after, now))
            if _standing(before) != _standing(after) or outdated[0] != outdated[1]:
                found.append(RecommendationFate(wanted.id, before, after, outdated))
        return found

    # --- what is known -----------------------------------------------------------------------------------------------

    def _restore(self, checkpoint: bytes) -> None:
        try:
            self._book.restore(checkpoint)
        except codec.DecodeError:
            return  # as the manager, which then learns from the reports that are kept

    def _take_in(self, before: Moment | None, upto: int) -> None:
        """Reports up to a position, and up to a moment."""
        while self._taken < len(self._reports):
            report = self._reports[self._taken]
            if report.seq > upto or (before is not None and report.moment > before):
                return
            self._taken += 1
            if report.seq > self._book.position:
                try:
                    self._book.observe(self.view, report.seq, report.event)
                except Exception:  # noqa: BLE001, S112 - what a report says wrongly ends it here as it did there
                    continue

    def _enter_round(self, stored: StoredEvent) -> None:
        """The first decision of a round: what the round began with."""
        key = (stored.based_on, stored.occurred_at)
        if key != self._round:
            self._round = key
            self._before_round = dict(self.anew)
            self._book.targets.refresh(self.view)
            self._book.forget(self.view, datetime.fromisoformat(stored.occurred_at).timestamp())

    def _pods_of(self, wanted: Wanted) -> Pods:
        """The live pods of a Recommendation, oldest first: matched anew when a pod, owner or Recommendation changed."""
        if self._pods is None:
            targets, specs = self._book.targets, self.view.state.of_kind(PodSpecState)
            self._pods = {}
            for uid in targets.candidates(self.view):
                for one in targets.of_pod(self.view, uid):
                    self._pods.setdefault(one.id, []).append((uid, specs[uid]))
            for pods in self._pods.values():
                pods.sort(key=lambda entry: (entry[1].added_seq, entry[0]))
        return self._pods.get(wanted.id, [])

    def _outdated(self, wanted: Wanted, state: RecommendationState | None, now: str) -> int:
        if wanted.mode not in REPLACING or state is None or not is_confident(state):
            return 0
        at = datetime.fromisoformat(now)
        return sum(why_replace(spec, wanted, state, at) is not None for _, spec in self._pods_of(wanted))


def _learned_by(checkpoint: bytes | None) -> RecommenderSettings:
    try:
        return checkpoint_settings(checkpoint) if checkpoint is not None else DEFAULT_SETTINGS
    except codec.DecodeError:
        return DEFAULT_SETTINGS


def _was_loading(recorded: RecommendationComputed) -> bool:
    return any(condition.type == FETCHING and condition.status == str(True) for condition in recorded.conditions)


def _samples(event: RecommendationComputed | RecommendationState) -> list[tuple[str, int, str, str]]:
    """Which samples a recommendation rests on."""
    return [(one.name, one.samples, one.first_sample_at, one.last_sample_at) for one in event.containers]


def _goes_on(state: RecommendationState, found: RecommendationComputed) -> bool:
    """Whether what was learned holds everything that stands behind a recommendation."""
    known = {name: (samples, first, last) for name, samples, first, last in _samples(found)}
    return all(
        name in known and known[name][1] == first and known[name][0] >= samples and known[name][2] >= last
        for name, samples, first, last in _samples(state)
    )


def _said(event: RecommendationComputed) -> RecommendationComputed:
    """What a recommendation says: pods of a large cluster are counted slice by slice, while others come and go."""
    return msgspec.structs.replace(event, observed_to=0, pods=0, settings={})


def _standing(state: RecommendationState | None) -> tuple[object, ...]:
    if state is None:
        return ()
    said = [(one.type, one.status, one.reason) for one in state.conditions]
    return (state.target, state.mode, state.containers, said)
