"""Finds the family of a pod equivalence class: the classes with which it shares the evaluation of nodes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, cast

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.engine.answers import CODE_BITS, Answers
from koord_scheduler.domain.engine.candidate_view import CandidateViews
from koord_scheduler.domain.engine.family_cells import Cells, Shared
from koord_scheduler.domain.engine.family_member import Member, Own
from koord_scheduler.domain.framework.extension_points import ROW_STATES
from koord_scheduler.domain.framework.node_points import Reads, RowStates, RowStatesPlugin
from koord_scheduler.domain.framework.plugin import Plugin, declares

_MOST_MEMBERS: Final = 1024
_MOST_FAMILIES: Final = 16


class _Read(NamedTuple):
    """How a class follows from nodes."""

    key: Hashable  # Equal for classes of one family
    shared: Shared  # What it shares with the family
    own: Own  # What it does not share


class Families:
    """The families of one profile. A family is used from `least` classes on, because a view is faster for few classes.
    If there are too many families, the oldest ones are dropped.

    Args:
        answers: Calls the plugins that read the shape of nodes.
        candidates: Makes views of few candidate nodes, which are faster where they are possible; None to use no such
            views.
        least: Number of classes from which their family is used; 0: families are never used.
    """

    def __init__(self, answers: Answers, candidates: CandidateViews | None, least: int) -> None:
        self._answers = answers
        self._candidates = candidates
        self._least = least
        self._reads: OrderedDict[PodClass, _Read | None] = OrderedDict()
        self._members: OrderedDict[PodClass, Member] = OrderedDict()
        self._cells: OrderedDict[Hashable, Cells] = OrderedDict()
        self._classes: OrderedDict[Hashable, int] = OrderedDict()

    def of(self, pod: PodClass) -> Member | None:
        """Return the class as a member of its family; None if a view must be used. That is so if the class has no
        family, if the family has too few classes, if few nodes are candidates, and during a trial.
        """
        member = self._members.get(pod)
        if member is None:
            member = self._joined(pod) if self._least and self._reads.get(pod, pod) is not None else None
        if member is None or not member.can_choose:
            return None
        return None if self._candidates is not None and self._candidates.has_few(pod) else member

    def _joined(self, pod: PodClass) -> Member | None:
        """Return the class as a new member of its family if the family has enough classes."""
        read = self._reads.get(pod)
        if read is None:
            read = self._reads[pod] = self._read(pod)
            if len(self._reads) > _MOST_MEMBERS:
                self._reads.popitem(last=False)
            if read is None:
                return None
            self._classes[read.key] = self._classes.pop(read.key, 0) + 1
            if len(self._classes) > _MOST_MEMBERS:
                self._classes.popitem(last=False)
        return self._made(pod, read) if self._classes.get(read.key, 0) >= self._least else None

    def _made(self, pod: PodClass, read: _Read) -> Member:
        cells = self._cells.get(read.key)
        if cells is None:
            if len(self._cells) >= _MOST_FAMILIES:
                self._cells.popitem(last=False)
                self._members.clear()
            cells = self._cells[read.key] = Cells(self._answers, read.shared)
        profile = self._answers.profile
        asked = sorted(self._answers.asked.of(pod).scores)
        member = self._members[pod] = Member(cells, read.own, profile.filters, profile.scores, asked)
        if len(self._members) > _MOST_MEMBERS:
            self._members.popitem(last=False)
        return member

    def _read(self, pod: PodClass) -> _Read | None:
        """Return how the class follows from nodes; None if a plugin shares nothing, or no plugin reads a state."""
        asked = self._answers.asked.of(pod)
        if asked.rows is None:
            return None
        shared = Shared(pod, [], [], [], [], [])
        own = Own(pod, [], [])
        terms: list[Hashable] = []
        places: dict[int, int] = {}

        def place_of(plugin: Plugin, state: Callable[[int], Hashable]) -> int:
            if id(plugin) not in places:
                places[id(plugin)] = len(shared.states)
                shared.states.append(state)
            return places[id(plugin)]

        read: dict[int, RowStates | None] = {}
        for _, each in (*asked.rows.filters, *[(index, score) for index, score, _ in asked.rows.scores]):
            if id(each) not in read:
                read[id(each)] = self._states_of(each, pod)
        for index, row_filter in asked.rows.filters:
            states = read[id(row_filter)]
            if states is None:
                return None
            base = (index + 1) << CODE_BITS
            terms.append(states.terms)
            if states.code is not None:
                shared.filters.append((base, states.code))
            if states.state is not None and states.code_of is not None:
                own.filters.append((base, place_of(row_filter, states.state), states.code_of))
        for index, row_score, weight in asked.rows.scores:
            states = read[id(row_score)]
            if states is None:
                return None
            terms.append(states.terms)
            if states.state is not None and states.score_of is not None:
                own.scores.append((index, place_of(row_score, states.state), states.score_of))
            elif states.score is not None and row_score.normalizes:
                shared.raws.append((index, states.score))
            elif states.score is not None:
                shared.scores.append((index, states.score, weight))
        if not shared.states:
            return None
        for index, score in asked.by_reads[Reads.SHAPE][1]:
            if score.normalizes:
                shared.raws.append((index, None))
            else:
                shared.shape_scores.append((index, self._answers.profile.scores[index][1]))
        return _Read((pod.shape_key, pod.concerned, tuple(terms)), shared, own)

    def _states_of(self, plugin: Plugin, pod: PodClass) -> RowStates | None:
        if not declares(plugin, ROW_STATES):
            return None
        return cast("RowStatesPlugin", plugin).row_states(pod, self._answers.nodes)
