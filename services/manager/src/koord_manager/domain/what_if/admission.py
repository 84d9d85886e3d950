"""Repeat the admission decisions of a window, under the recorded settings and under tried ones.

Each decision uses the facts of the recorded one. It is always repeated under the recorded profiles and gates, which
must give the recorded result. If profiles or gates are tried, it is repeated under those as well. Consequences of
another result are not followed.

Source:
    manager spec, 8 to 13
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import ConfigAccepted, ConfigRejected, CustomObjectObserved, PodSpecAdded, PodSpecChanged
from koordcore.events.objects import plural_of as plural_of_ref

from koord_manager.domain.admission.context.profiles import ColocationProfile, ProfileIndex
from koord_manager.domain.admission.options import Options, options_from
from koord_manager.domain.admission.request import JsonObject
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.apply import apply_to_new_pod
from koord_manager.domain.controllers.recommender.targets import Targets
from koord_manager.domain.what_if.admission_cases import (
    APPLIED_KINDS,
    NOT_RETAINED,
    AdmissionContext,
    Case,
    NotRetained,
    decision_case,
    fact_case,
)
from koord_manager.domain.what_if.admission_outcome import Change, Outcome, Record, RecordedDecision, changes
from koord_manager.domain.what_if.recording import Tally

_FACTS: Final = frozenset(
    model.__name__ for model in (PodSpecAdded, PodSpecChanged, CustomObjectObserved, ConfigAccepted, ConfigRejected)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionTried:
    """The colocation profiles and gates to try in a what-if run instead of the recorded ones."""

    # Name -> profile, instead of the recorded profiles; None to keep the recorded ones.
    profiles: Mapping[str, ColocationProfile] | None = None
    gates: Mapping[str, bool]  # Gates that override the recorded ones

    def __bool__(self) -> bool:
        return self.profiles is not None or bool(self.gates)


class AdmissionFate(NamedTuple):
    resource: str
    namespace: str
    name: str
    operation: str
    source: str  # Who asked for admission: "webhook", "apply", "workload", "controller" or "mirror"
    at: str  # Time of the recorded decision, RFC 3339
    position: int  # Position of the log that the decision was based on
    recorded: Outcome
    rerun: Outcome
    changes: list[Change]  # Fields in which the admitted objects differ


class AdmissionDecisions:
    """Repeats the admission decisions of a what-if run, and collects the differences."""

    def __init__(
        self, view: ManagerView, decisions: Sequence[StoredEvent], tried: AdmissionTried | None = None, since: str = ""
    ) -> None:
        """Prepare to repeat the retained decisions.

        Args:
            decisions: Retained admission decisions in order.
            since: Time of the oldest retained decision, RFC 3339, or empty if all are retained.
        """
        self.view = view
        self.tally = Tally()  # Numbers of the decisions in the window
        # Number of pods without a recorded decision that the recorded profiles would have changed or denied.
        self.not_reviewed = 0
        self.fates: list[AdmissionFate] = []  # Objects with another result under the tried settings
        # Objects with another result under the recorded settings, which points to missing information.
        self.unexplained: list[AdmissionFate] = []
        self._tried = tried if tried else None
        self._index = ProfileIndex(tried.profiles) if tried is not None and tried.profiles is not None else None
        self._record = Record(decisions)
        self._since = since
        self._due: list[tuple[int, int, RecordedDecision | StoredEvent]] = []
        self._numbered = 0
        self._begin = 0
        first = next((one for one in self._record.decisions if one.is_whole), None)
        if first is not None:
            self._options = options_from(first.event.settings)
        else:
            self._options = Options(gates=tried.gates) if tried is not None else Options()
        self._in_force = AdmissionContext(view, self._options)
        self._rerun = AdmissionContext(view, self._options)
        self._decision = ""
        self._targets = Targets()

    def begin(self) -> None:
        """Start the window: queue the recorded decisions that were based on the present position or later ones."""
        self._begin = self.view.state.position
        if self.view.admission.recommend is None:
            self.view.recommend_with(self._recommend)
        for decision in self._record.decisions:
            if decision.based_on >= self._begin:
                self._expect(decision.based_on, decision)

    def see(self, stored: StoredEvent) -> None:
        """Queue the admission of the object in a fact of the window, if there is one, before the fact is folded."""
        if stored.type not in _FACTS or stored.based_on < self._begin:
            return
        if stored.type == PodSpecChanged.__name__ and not stored.causation_id.startswith("profile/"):
            return
        if stored.type == CustomObjectObserved.__name__ and plural_of_ref(stored.ref.id) not in APPLIED_KINDS:
            return
        self._expect(stored.based_on, stored)

    def decide_up_to(self, position: int) -> None:
        """Repeat the queued decisions that were based on this position of the log or an earlier one."""
        while self._due and self._due[0][0] <= position:
            due = heappop(self._due)[2]
            if isinstance(due, RecordedDecision):
                self._repeat(decision_case(due, self._record), "")
                continue
            event = CATALOGUE.read(due)
            if event is not None:
                self._repeat(fact_case(due, event, self.view, self._record, self._since), due.causation_id)

    def _expect(self, based_on: int, due: RecordedDecision | StoredEvent) -> None:
        heappush(self._due, (based_on, self._numbered, due))
        self._numbered += 1

    def _repeat(self, case: Case | NotRetained | None, decision: str) -> None:
        if case is None:
            return
        self.tally.recorded += 1
        if case == NOT_RETAINED:
            self.tally.not_retained += 1
            return
        assert isinstance(case, Case)
        self._set_contexts(case, decision)
        found = case.check(self._in_force)
        is_same = case.is_same(found)
        if not is_same and not case.is_certain:
            self.tally.recorded -= 1
            self.not_reviewed += 1
            return
        self.tally.rerun += 1
        self.tally.same += is_same
        if not is_same:
            self.unexplained.append(self._fate(case, case.recorded, found))
        if self._tried is not None and case.again is not None:
            recorded = found if case.again is case.check else case.again(self._in_force)
            rerun = case.again(self._rerun)
            fate = self._fate(case, recorded, rerun)
            if fate.changes or (recorded.allowed, recorded.rules) != (rerun.allowed, rerun.rules):
                self.fates.append(fate)

    def _set_contexts(self, case: Case, decision: str) -> None:
        """Prepare the recorded and the tried context of a case: its gates, profiles and quota usage."""
        self._options = case.options or self._options
        is_another = not decision or decision != self._decision
        self._decision = decision
        view, options = self.view, self._options
        self._in_force = AdmissionContext(view, options, {} if is_another else self._in_force.accounts)
        if self._tried is not None:
            if self._index is not None:
                view = copy.copy(view)
                view.admission = self.view.admission.with_profiles(self._index)
            options = replace(options, gates={**options.gates, **self._tried.gates})
            self._rerun = AdmissionContext(view, options, {} if is_another else self._rerun.accounts)

    def _fate(self, case: Case, recorded: Outcome, rerun: Outcome) -> AdmissionFate:
        differing = changes(recorded.object, rerun.object) if recorded.allowed and rerun.allowed else []
        return AdmissionFate(*case[:6], self.view.state.position, recorded, rerun, differing)

    def _recommend(self, pod: JsonObject, namespace: str) -> str | None:
        options = self._options
        return apply_to_new_pod(
            self.view,
            self._targets,
            pod,
            namespace,
            tells_usage=options.recommended_usage,
            boosts=options.startup_boost,
        )
