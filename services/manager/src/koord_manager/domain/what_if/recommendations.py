"""Repeat the recommendations of a window, under the recorded settings of the recommender or others.

A repeated recommendation uses the facts, the reports and the time of the recorded one. Samples that are older than the
retained reports come from a checkpoint.

Source:
    manager spec, 15
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

import msgspec
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.state.aggregates import PodSpecState, RecommendationState
from koordcore.state.cluster import evolve
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.apply import NOT_IN_PLACE, REPLACING, replacement_drafts, why_replace
from koord_manager.domain.controllers.recommender.book import RecommenderBook, checkpoint_settings
from koord_manager.domain.controllers.recommender.decide import (
    FETCHING,
    REFRESHED,
    cause_of,
    current_status,
    is_confident,
)
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS, RecommenderSettings, settings_from
from koord_manager.domain.controllers.recommender.targets import Wanted, changing
from koord_manager.domain.what_if.recording import Moment, Report, Tally, moment_of

_MATCHING: Final = frozenset(("podspec", "workloadspec", "customspec"))
"""Kinds of facts that can change which pods a Recommendation selects."""
_EVERYTHING: Final = 1 << 62

Pods = list[tuple[str, PodSpecState]]


@dataclass(frozen=True, slots=True)
class RecommendationFate:
    """A Recommendation that differs between recording and re-run at the end of the window."""

    id: str  # Id of its aggregate, `<namespace>=<name>`
    recorded: RecommendationState | None  # Recorded status, or None if there is none
    rerun: RecommendationState | None  # Status of the re-run, or None if there is none
    outdated: tuple[int, int]  # Numbers of live pods that would have to be re-created: in the recording, in the re-run


class RecommendationDecisions:
    """Repeats the recommendations of a what-if run, and keeps the statuses that the re-run would publish."""

    def __init__(
        self,
        view: ManagerView,
        reports: Sequence[Report],
        settings: RecommenderSettings | None = None,
        checkpoint: bytes | None = None,
        first: RecommenderSettings | None = None,
    ) -> None:
        """Prepare to repeat recommendations with the samples of a checkpoint and of the retained reports.

        Args:
            reports: Retained reports in order.
            settings: Settings to try, or None for those in force.
            checkpoint: Checkpoint of the recorded recommender, or None to learn from the reports alone.
            first: Settings in force at the beginning, or None for those of the checkpoint, else the defaults.
        """
        self.view = view
        # Id of a Recommendation -> status that the re-run would publish.
        self.rerun: dict[str, RecommendationState] = {}
        self.tally = Tally()  # Numbers of decisions in the window: recommendations, and evictions because of one
        # Recorded settings, as the last recorded recommendation names them.
        self.in_force = first or _learned_by(checkpoint)
        self._tried = settings
        self._book = RecommenderBook(self.settings)
        if checkpoint is not None and not self._learns_differently:
            self._restore(checkpoint)
        self._reports = reports
        self._taken = 0
        self._known_from = self._book.position or (reports[0].seq - 1 if reports else 0)
        self._expected: list[tuple[int, int, int]] = []
        self._pods: dict[str, Pods] | None = None
        self._run: tuple[int, str] | None = None
        self._before_run: dict[str, RecommendationState] = {}
        self._decided: set[str] = set()

    @property
    def settings(self) -> RecommenderSettings:
        """Settings under which the re-run decides: the tried ones, or the recorded ones if none are tried."""
        return self._tried or self.in_force

    @property
    def _learns_differently(self) -> bool:
        """Whether the tried settings change how samples are learned, so that a checkpoint cannot be used."""
        return self.settings.learning != self.in_force.learning

    def _recorded_by(self, recorded: RecommendationComputed) -> None:
        self.in_force = settings_from(recorded.settings)
        if self.settings != self._book.settings:
            self._book.use(self.settings)
            if self._book.position == 0:
                self._taken = 0  # as the manager, which then learns again from the reports that are kept

    # --- the recording -----------------------------------------------------------------------------------------------

    def take_in_reports(self, stored: StoredEvent) -> None:
        """Learn from the reports before a fact, except those that the next recorded recommendation had not read."""
        self._take_in(moment_of(stored), self._expected[0][2] if self._expected else _EVERYTHING)

    def folded(self, event: Event | None, stored: StoredEvent) -> None:
        """Update the re-run after a fact was folded.

        The fact may change which pods a Recommendation selects, or it may name the recorded settings.
        """
        if stored.ref.kind in _MATCHING:
            self._pods = None
        if isinstance(event, RecommendationComputed) and not self._expected:
            self._recorded_by(event)
            self._take_in(None, event.observed_to)

    def begin(self) -> None:
        self.rerun = dict(self.view.state.of_kind(RecommendationState))

    def expect(self, based_on: int, seq: int, event: Event) -> None:
        """Announce a recorded recommendation of the window; other events are ignored.

        Reports are then learned only up to the position that it had read. `based_on` and `seq` are positions of the
        log.
        """
        if isinstance(event, RecommendationComputed):
            heappush(self._expected, (based_on, seq, event.observed_to))

    def set_published(self, id_: str, event: Event, stored: StoredEvent) -> None:
        """Apply an event to the status of a Recommendation in the re-run, with position and time of a recorded fact."""
        state = evolve(self.rerun.get(id_), event, stored)
        if isinstance(state, RecommendationState):
            self.rerun[id_] = state
        else:
            self.rerun.pop(id_, None)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def compute(self, stored: StoredEvent, recorded: RecommendationComputed) -> None:
        """Repeat a recorded recommendation with the reports and time of the recorded one, and count the result.

        If the Recommendation does not exist any more, or its samples are not retained, the re-run takes the recorded
        status. If the re-run would not publish and no settings are tried, its status stays.
        """
        heappop(self._expected)
        self._recorded_by(recorded)
        self._take_in(None, recorded.observed_to)
        self._enter_run(stored)
        self.tally.recorded += 1
        id_, now = stored.ref.id, datetime.fromisoformat(stored.occurred_at)
        wanted, state = self._book.targets.one(id_), self.rerun.get(id_)
        if wanted is None:
            self.set_published(id_, recorded, stored)
            return
        found = self._found(wanted, state, recorded, now)
        if found is None:
            self.tally.not_retained += 1
            self.set_published(id_, recorded, stored)
            return
        cause = cause_of(wanted, found, state, now)
        if cause is None and self._tried is None:
            return
        self.tally.rerun += 1
        found = msgspec.structs.replace(found, cause=cause or REFRESHED)
        self.tally.same += _comparable(found) == _comparable(recorded)
        self._decided.add(id_)
        self.set_published(id_, found, stored)

    def _found(
        self, wanted: Wanted, state: RecommendationState | None, recorded: RecommendationComputed, now: datetime
    ) -> RecommendationComputed | None:
        if recorded.observed_to < self._known_from:
            return None
        found = current_status(self._book, wanted, self._pods_of(wanted), state, now, loading=_was_loading(recorded))
        knows = self._learns_differently or (
            self._book.position <= recorded.observed_to and _samples(found) == _samples(recorded)
        )
        return found if knows else None

    def drop(self, stored: StoredEvent, recorded: RecommendationDropped) -> None:
        """Repeat the removal of the status of a Recommendation whose object was deleted, and count the result.

        It counts as repeated with an equal result if the object does not exist. The re-run removes the status anyway.
        """
        self._enter_run(stored)
        self.tally.recorded += 1
        if self._book.targets.one(stored.ref.id) is None:
            self.tally.rerun += 1
            self.tally.same += 1
        self.set_published(stored.ref.id, recorded, stored)

    def replace(self, stored: StoredEvent, recorded: PodEvictionRequested) -> None:
        """Repeat the decision to evict a pod with outdated requests, and count the result.

        The result is equal if the re-run evicts the same pod with the same event. If it evicts no pod of the
        Recommendation, nothing counts as repeated.
        """
        self._enter_run(stored)
        self.tally.recorded += 1
        now = datetime.fromisoformat(stored.occurred_at)
        tried_in_place = NOT_IN_PLACE in recorded.message
        drafts = [
            draft
            for wanted in self._book.targets.of_pod(self.view, stored.ref.id)
            for draft in replacement_drafts(
                self.view,
                wanted,
                self._changed_by(wanted),
                now,
                self._before_run.get(wanted.id),
                can_resize=tried_in_place,
            )
        ]
        self.tally.rerun += bool(drafts)
        self.tally.same += any((draft.ref, draft.event) == (stored.ref, recorded) for draft in drafts)

    def end(self, until: Moment | None, now: str) -> None:
        """End the window: learn from the remaining reports, and make outstanding decisions if settings are tried.

        A Recommendation without a decision in the window is decided at `now` if it has a status in the re-run and the
        known samples include all samples of that status. The samples are not compared if the tried settings learn
        differently.

        Args:
            until: Reports that were stored after this moment are ignored; None for no limit.
            now: Time of the end, RFC 3339.
        """
        self._expected = []
        self._take_in(until, _EVERYTHING)
        if self._tried is None:
            return
        self._book.targets.refresh(self.view)
        for wanted in self._book.targets.all():
            state = self.rerun.get(wanted.id)
            if wanted.id in self._decided or state is None:
                continue
            at = datetime.fromisoformat(now)
            found = current_status(self._book, wanted, self._pods_of(wanted), state, at)
            if self._learns_differently or _goes_on(state, found):
                self.tally.rerun += 1
                ref = AggregateRef("recommendation", wanted.id)
                self.set_published(wanted.id, found, StoredEvent(self.view.state.position, ref, {}, b""))

    def fates(self, now: str) -> list[RecommendationFate]:
        """Return the Recommendations that differ between recording and re-run, by id. `now`: RFC 3339."""
        self._book.targets.refresh(self.view)
        recorded = self.view.state.of_kind(RecommendationState)
        found: list[RecommendationFate] = []
        for wanted in self._book.targets.all():
            before, after = recorded.get(wanted.id), self.rerun.get(wanted.id)
            outdated = (self._outdated(wanted, before, now), self._outdated(wanted, after, now))
            if _compared_fields(before) != _compared_fields(after) or outdated[0] != outdated[1]:
                found.append(RecommendationFate(wanted.id, before, after, outdated))
        return found

    # --- what is known -----------------------------------------------------------------------------------------------

    def _restore(self, checkpoint: bytes) -> None:
        try:
            self._book.restore(checkpoint)
        except codec.DecodeError:
            return  # as the manager, which then learns from the reports that are kept

    def _take_in(self, before: Moment | None, upto: int) -> None:
        while self._taken < len(self._reports):
            report = self._reports[self._taken]
            if report.seq > upto or (before is not None and report.moment > before):
                return
            self._taken += 1
            if report.seq > self._book.position:
                try:
                    self._book.observe(self.view, report.seq, report.node, report.event)
                except Exception:  # noqa: BLE001, S112 - what a report says wrongly ends it here as it did there
                    continue

    def _enter_run(self, stored: StoredEvent) -> None:
        """Prepare the first decision of a run of the recommender, which sees the state at the beginning of the run."""
        key = (stored.based_on, stored.occurred_at)
        if key != self._run:
            self._run = key
            self._before_run = dict(self.rerun)
            self._book.targets.refresh(self.view)
            self._book.forget(self.view, datetime.fromisoformat(stored.occurred_at).timestamp())

    def _pods_of(self, wanted: Wanted) -> Pods:
        if self._pods is None:
            targets, specs = self._book.targets, self.view.state.of_kind(PodSpecState)
            self._pods = {}
            for uid in targets.candidates(self.view):
                for one in targets.of_pod(self.view, uid):
                    self._pods.setdefault(one.id, []).append((uid, specs[uid]))
            for pods in self._pods.values():
                pods.sort(key=lambda entry: (entry[1].added_seq, entry[0]))
        return self._pods.get(wanted.id, [])

    def _changed_by(self, wanted: Wanted) -> Pods:
        """Return the pods of a Recommendation that no older one changes."""
        of_pod = self._book.targets.of_pod
        return [
            entry
            for entry in self._pods_of(wanted)
            if (one := changing(of_pod(self.view, entry[0]))) is not None and one.id == wanted.id
        ]

    def _outdated(self, wanted: Wanted, state: RecommendationState | None, now: str) -> int:
        if wanted.mode not in REPLACING or state is None or not is_confident(state):
            return 0
        at = datetime.fromisoformat(now)
        return sum(why_replace(spec, wanted, state, at) is not None for _, spec in self._changed_by(wanted))


def _learned_by(checkpoint: bytes | None) -> RecommenderSettings:
    try:
        return checkpoint_settings(checkpoint) if checkpoint is not None else DEFAULT_SETTINGS
    except codec.DecodeError:
        return DEFAULT_SETTINGS


def _was_loading(recorded: RecommendationComputed) -> bool:
    return any(condition.type == FETCHING and condition.status == str(True) for condition in recorded.conditions)


def _samples(event: RecommendationComputed | RecommendationState) -> list[tuple[str, int, str, str]]:
    """Return name, number of samples, and times of the first and last one of each container of a recommendation."""
    return [(one.name, one.samples, one.first_sample_at, one.last_sample_at) for one in event.containers]


def _goes_on(state: RecommendationState, found: RecommendationComputed) -> bool:
    """Return whether the learned models include every sample of a published recommendation."""
    known = {name: (samples, first, last) for name, samples, first, last in _samples(found)}
    return all(
        name in known and known[name][1] == first and known[name][0] >= samples and known[name][2] >= last
        for name, samples, first, last in _samples(state)
    )


def _comparable(event: RecommendationComputed) -> RecommendationComputed:
    """Return a recommendation without the fields that vary between equal decisions, such as the number of pods."""
    return msgspec.structs.replace(event, observed_to=0, pods=0, settings={})


def _compared_fields(state: RecommendationState | None) -> tuple[object, ...]:
    if state is None:
        return ()
    said = [(one.type, one.status, one.reason) for one in state.conditions]
    return (state.target, state.mode, state.containers, said)
