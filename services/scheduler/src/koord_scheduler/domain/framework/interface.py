"""What a plugin is: it judges many nodes at once and says why not.

    FilterPlugin, ScorePlugin     judge a node by the node alone: answers are kept per kind of pod, row by row
    CrossNodeFilterPlugin, ...      judge a node by what runs elsewhere, too: they make a judge for each kind of pod
    PreFilterPlugin               one look at the pod before any node: refuse it, or say which nodes come into question
    FindOneNodePlugin             a plan for all pods of a job
    PreEnqueuePlugin              may the pod be attempted at all
    ReservePlugin, PermitPlugin   what follows from a chosen node, and whether the pod may go there yet
    PostFilterPlugin              no node was feasible: what would help

A plugin never looks at the clock, the queue or another plugin: what it knows it has from the events that the fold
hands it (`FoldingPlugin`), and the moment it is asked for is an argument. One object may be several of these.

source    scheduler-core spec, 1 and 3
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from koordcore.events.envelope import Event, StoredEvent
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, LabelColumn, NodeColumns, Rows
from koord_scheduler.domain.pods.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.pods.record import PodRecord

RowJudge: TypeAlias = Callable[[int], int]
"""What a plugin says of one row, once it knows the kind of pod."""


class Reads(Enum):
    """What a plugin's answer for a node depends on, besides the pod's class."""

    SHAPE = "labels, taints and flags of the node"
    LOAD = "allocatable and requested resources of the node, and its measured load"


class Named(Protocol):
    """Every plugin has a name."""

    @property
    def name(self) -> str:
        """Name in configuration and explanations."""
        ...


class FilterPlugin(Named, Protocol):
    """Says which nodes a pod may not go to. `rows` are the nodes to judge.

    A cached answer for other rows stays valid as long as nothing that the plugin reads has changed, which `reads`
    declares and the journals of `NodeColumns` record.
    """

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A code for each row, shape (K,): 0 passes, any other below 2**48 refuses; None: every row passes."""
        ...

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """What a code that is not 0 means, in words that a person can act on."""
        ...

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """For rows that it refuses: would it even if every pod left the node, shape (K,)."""
        ...


@runtime_checkable
class TolerationFilter(Protocol):
    """A filter of the shape of nodes that answers alike for all pods without `nodeName` that tolerate the same.

    No pod's leaving changes what it refuses (`unresolvable` is True everywhere).
    """

    by_tolerations: bool


@runtime_checkable
class SingleRowFilter(Protocol):
    """A filter that can also judge one row without arrays: the scalar twin of `filter`, equal to it (tested)."""

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowJudge | None:
        """From a row to its code, for one kind of pod, as things stand at each call; None: all rows pass for good."""
        ...


@runtime_checkable
class SingleRowScore(Protocol):
    """A score that can also judge one row without arrays: the scalar twin of `score`, equal to it (tested)."""

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowJudge | None:
        """From a row to its raw score, for one kind of pod, as things stand at each call; None: 0 for good."""
        ...


class ScorePlugin(Named, Protocol):
    """Says how well a feasible node suits a pod."""

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    @property
    def normalizes(self) -> bool:
        """Whether `normalize` depends on the range over the feasible nodes."""
        ...

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A raw score for each row, shape (K,); None: 0 for every row."""
        ...

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Scores within 0..100. low, high: least and greatest raw score over the feasible nodes."""
        ...


class CrossNodeFilter(Protocol):
    """One kind of pod's filter by what runs elsewhere. Codes are 1..255."""

    def filter(self, rows: Rows) -> IntArray | None:
        """A code for each row, shape (K,): 0 passes; None: every row passes."""
        ...

    def reason(self, code: int) -> str:
        """What a code means."""
        ...

    def is_unresolvable(self, code: int) -> bool:
        """Whether no pod's leaving the node would help."""
        ...


class CrossNodeScore(Protocol):
    """One kind of pod's score by what runs elsewhere."""

    def scores(self, feasible: Rows) -> IntArray | None:
        """Scores within 0..100 for the feasible nodes, shape (K,), normalized over them; None: skipped, 0 for all."""
        ...


@runtime_checkable
class DomainFilter(CrossNodeFilter, Protocol):
    """A coupled filter that says the same of all nodes with the same value of one label: those of a topology domain."""

    @property
    def label(self) -> LabelColumn | None:
        """The label; None: it looks at nodes otherwise."""
        ...

    def codes_by_value(self) -> IntArray:
        """A code for each value of the label, as `CrossNodeFilter.filter` gives it for each node, shape (V,)."""
        ...


@runtime_checkable
class DomainScore(CrossNodeScore, Protocol):
    """A coupled score that says the same of all nodes with the same value of one label."""

    @property
    def label(self) -> LabelColumn | None:
        """The label; None: it looks at nodes otherwise."""
        ...

    def scores_by_value(self, present: Rows) -> IntArray | None:
        """Scores as `CrossNodeScore.scores` gives them, for each value of the label, shape (V,); None: ask that one.

        present    values that feasible nodes have, ascending
        """
        ...


class CrossNodeFilterPlugin(Named, Protocol):
    """Makes filters by what runs elsewhere."""

    def version(self) -> int:
        """Grows when `filter_for` may answer otherwise than before, for whatever pod."""
        ...

    def filter_for(self, subject: Subject) -> CrossNodeFilter | None:
        """The filter of a kind of pod; None: nothing concerns it (Skip)."""
        ...


class CrossNodeScorePlugin(Named, Protocol):
    """Makes scores by what runs elsewhere."""

    def version(self) -> int:
        """Grows when `score_for` may answer otherwise than before, for whatever pod."""
        ...

    def score_for(self, subject: Subject) -> CrossNodeScore | None:
        """The score of a kind of pod; None: it adds nothing (Skip)."""
        ...


@runtime_checkable
class PodReader(Named, Protocol):
    """A plugin that reads more of a pod than resources, selectors and tolerations."""

    def read(self, pod: Pod) -> Hashable:
        """All that it reads; pods that agree in it (and in the rest of the class) share their answers.

        The plugin finds it again as `class.aspects[name]`; None: nothing, and it is not kept.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A pod is refused before or after nodes are looked at.

    resolvable    another pod's leaving may change it (Unschedulable), or not (Unresolvable)
    key           what it has in common with other pods that wait for the same
    """

    plugin: str
    message: str
    resolvable: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Only these nodes come into question (names that are no node are passed over).

    preferred    in this order, the first that is feasible is taken without scoring
    job          uid -> node of all members of the pod's job, when its attempt has just planned them
    """

    names: frozenset[str] | None = None
    preferred: tuple[str, ...] = ()
    job: Mapping[str, str] = field(default_factory=dict[str, str])


class PreFilterPlugin(Named, Protocol):
    """Looks at the pod before any node."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Refuse the pod, restrict its nodes, or None: go on."""
        ...


class Offers(Protocol):
    """What the nodes of an attempt would take; asking leaves nothing behind."""

    def slots(self, uids: Sequence[str]) -> Mapping[str, int]:
        """Node -> how many of these pods, in order, fit on it one after another; nodes that take none are absent."""
        ...

    def fit_error(self) -> str:
        """Why the nodes take no more, in one sentence."""
        ...


class FindOneNodePlugin(Named, Protocol):
    """Plans a whole job when its first pod is attempted, and keeps its pods to the plan; one at most in a profile."""

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Refuse the pod, restrict it to its planned node, or None: it is part of no plan. After all PreFilters."""
        ...


class PreEnqueuePlugin(Named, Protocol):
    """Keeps pods out of the active queue."""

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Why the pod may not be attempted now; None: it may."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Whom a plugin wants to be scheduled next.

    uid        "": nobody, the queue decides
    like       pod whose turn and attempts it inherits
    rejected   waiting pods that lose their nodes because of what has just ended
    """

    uid: str = ""
    like: str = ""
    rejected: Sequence[str] = ()


class NextPodPlugin(Named, Protocol):
    """Picks the next pod past the queue; one at most in all profiles."""

    def next_pod(self) -> Next:
        """The next pod."""
        ...


class ReservePlugin(Named, Protocol):
    """Keeps an account of its own of pods that were given a node."""

    def reserve(self, pod: PodRecord, node: str) -> None:
        """The pod is assumed on the node."""
        ...

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """It is not, after all; returns the uids of waiting pods that lose their nodes with it."""
        ...

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """The log has the placement; returns the uids of pods that are worth an attempt because of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The pod keeps its node but may not go there yet; it is given up after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The pod may go, and with it, in one atomic batch, these that waited.

    activate   pods that are worth an attempt because of it
    gang       aggregate id of the group that is complete now, "" none
    """

    waiting: Sequence[str] = ()
    activate: Sequence[str] = ()
    gang: str = ""


class PermitPlugin(Named, Protocol):
    """Holds a pod back on its node."""

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Refuse, hold back, or let go."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a failed attempt means for others.

    message         of the whole group; "": the failure is the pod's own
    rejected        waiting pods that lose their nodes
    is_root_cause   False: the pod failed because its group had failed already
    tell            pods of the group to whom `message` is to be said, too
    """

    message: str = ""
    rejected: Sequence[str] = ()
    is_root_cause: bool = True
    tell: Sequence[str] = ()


class AfterPostFilterPlugin(Named, Protocol):
    """Hears of every failed attempt, after all PostFilters."""

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """The pod found no node."""
        ...


class Room(Protocol):
    """What a preemption has to keep to beside the nodes: tried with and without victims."""

    def take(self, uid: str) -> None:
        """The victim gives back what it holds."""
        ...

    def put_back(self, uid: str) -> None:
        """It does not, after all."""
        ...

    def fits(self) -> bool:
        """Whether the preemptor fits now."""
        ...


class PreemptionPlugin(Named, Protocol):
    """A preemption's rules: for whom, at whose cost, and how far it searches (`domain.preemption` does the search)."""

    def answers(self, rejection: Rejection | None) -> bool:
        """Whether it can help a pod that was rejected so; None: no node was feasible."""
        ...

    def spares_everyone(self, pod: PodRecord) -> bool:
        """Whether nobody at all is a victim for the pod: no node need be looked at. False: `may_preempt` tells."""
        ...

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Whether the pod may take the other one's place; the other's priority is lower."""
        ...

    def room_for(self, pod: PodRecord) -> Room | None:
        """What else has to fit; None: nothing."""
        ...

    def most_candidates(self, nodes: int) -> int:
        """How many nodes of so many are examined."""
        ...


@runtime_checkable
class FoldingPlugin(Named, Protocol):
    """A plugin with a state of its own, folded from the log.

    kinds    kinds of aggregates whose events it takes (`podspec`, `nodespec`, `config`, `customspec`, ...)
    """

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of aggregates that it follows."""
        ...

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Take note of one event of the log: each once, in the order of the log; must not fail for a valid event.

        returns    whether pods that wait may have better luck now, on whatever node
        """
        ...

    def facts(self) -> bytes:
        """Its state, for a snapshot."""
        ...

    def restore(self, facts: bytes) -> None:
        """Begin with this state, once, before any event."""
        ...
