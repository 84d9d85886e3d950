"""The pods and nodes that one cycle sees if plugins change them for the cycle. The changes are undone after the cycle.

    BeforeFilter of each plugin -> columns show its nodes, `CycleView` its pods -> filters, preemption -> undo

Changed nodes are written to the columns like facts, so that every cached answer follows row by row. How many pods of a
job fit on nodes is found by a trial on the columns, which is undone as well.

Source: scheduler-core spec, 1 (step 6), 3 (FilterTransformer), 9 (step 1)
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np
from koordcore.protocol.objects import Node, Pod
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.columns.node_shape import NodeShape, node_shape
from koord_scheduler.domain.engine.answers import Refusals
from koord_scheduler.domain.engine.decision import Restriction
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.engine.frameworks import Framework, unreadable
from koord_scheduler.domain.framework.cycle_points import NodeView, Views
from koord_scheduler.domain.framework.extension_points import BEFORE_FILTER
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.loop.state.node_refusals import REASON_OF_JOB
from koord_scheduler.domain.loop.state.state import SchedulerState


class Part(NamedTuple):
    """A copy of the pod, the subject of the copy, and the positions of the nodes that see this copy."""

    pod: Pod
    subject: Subject
    rows: Rows


@dataclass(frozen=True, slots=True)
class CycleView:
    """The pod as each node sees it in one cycle: the pod itself, or a copy that a plugin made for some nodes."""

    pod: Pod  # The pod that nodes outside of `apart` see
    subject: Subject
    apart: tuple[Part, ...] = ()  # Copies of the pod with the nodes that see them. No node occurs twice.

    def at(self, row: int) -> Subject:
        """Return the subject of the pod that the node at position `row` sees."""
        return next((part.subject for part in self.apart if row in part.rows), self.subject)

    def pod_at(self, row: int) -> Pod:
        """Return the pod as the node at position `row` sees it: the pod, or a copy that plugins made for the node."""
        return next((part.pod for part in self.apart if row in part.rows), self.pod)

    def parts(self, rows: Rows) -> list[tuple[Subject, Rows]]:
        """Group the nodes at `rows` by the pod that they see: (its subject, positions of the nodes). Each node occurs
        once; groups without nodes are left out.
        """
        rest, found = rows, list[tuple[Subject, Rows]]()
        for _, subject, part in self.apart:
            found.append((subject, np.intersect1d(rows, part, assume_unique=True)))
            rest = np.setdiff1d(rest, part, assume_unique=True)
        return [(subject, part) for subject, part in ((self.subject, rest), *found) if len(part)]

    def resolvable(self, engine: Engine) -> Rows:
        """Return the positions of refused nodes for which preemption might help. See `Engine.resolvable`."""
        if not self.apart:
            return engine.resolvable(self.subject)
        found = [
            np.intersect1d(engine.resolvable(subject), rows, assume_unique=True)
            for subject, rows in self.parts(np.flatnonzero(engine.nodes.alive))
        ]
        return np.sort(np.concatenate([*found, np.zeros(0, np.intp)]))

    def refusals(self, engine: Engine) -> list[tuple[Subject, Refusals]]:
        """Return the refused nodes by plugin and reason, each with the subject that these nodes see."""
        if not self.apart:
            return [(self.subject, each) for each in engine.refusals(self.subject)]
        found: list[tuple[Subject, Refusals]] = []
        for subject, part in self.parts(np.flatnonzero(engine.nodes.alive)):
            for each in engine.refusals(subject):
                rows = np.intersect1d(each.rows, part, assume_unique=True)
                if len(rows):
                    found.append((subject, each._replace(rows=rows)))
        return found


@contextmanager
def seen(state: SchedulerState, pod: PodRecord, rows: Rows) -> Generator[CycleView | Rejection]:
    """Show pods and nodes as the BeforeFilter plugins change them, inside this context. Undo the changes at its end.
    Yields the changed view, or the rejection of a plugin.
    """
    framework = state.frameworks.framework_of(pod)
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
    parts = [Part(pod.pod, pod.subject, rows)]
    guests = count()
    with ExitStack() as views:
        for plugin in framework.plugins_for(pod).at(BEFORE_FILTER):
            after: list[Part] = []
            for part in parts:
                try:
                    answer = plugin.before_filter(part.pod, state.nodes, part.rows)
                    if isinstance(answer, Views):
                        views.enter_context(_viewed(state, answer.nodes, guests))
                        answer = list(_divided(framework, part, answer.pods))
                except InvalidInput as error:
                    answer = unreadable(plugin, error)
                if isinstance(answer, Rejection):
                    yield answer
                    return
                after += [part] if answer is None else answer
            parts = after
        own = _renewed(state, framework, Part(pod.pod, pod.subject, rows))
        apart = tuple([_renewed(state, framework, part) for part in parts if part.pod is not pod.pod])
        yield CycleView(own.pod, own.subject, apart)


def _renewed(state: SchedulerState, framework: Framework, part: Part) -> Part:
    """Return the part with a subject whose resources have columns if a changed node is the first one to offer them."""
    if not state.nodes.is_outdated(part.subject.pod_class.demand):
        return part
    return part._replace(subject=framework.subject_of(part.pod))


def _divided(framework: Framework, part: Part, copies: Iterable[tuple[Rows, Pod]]) -> Iterator[Part]:
    """Yield the copies with their rows of the part, and the rest of the part; copies without rows are absent."""
    rest = part.rows
    for rows, copy in copies:
        own = Part(copy, framework.subject_of(copy), np.intersect1d(rows, rest))
        rest = np.setdiff1d(rest, own.rows)
        if len(own.rows):
            yield own
    if len(rest):
        yield part._replace(rows=rest)


@contextmanager
def _viewed(state: SchedulerState, views: Mapping[int, NodeView], guests: Iterator[int]) -> Generator[None]:
    """Show changed nodes inside this context. `views`: row -> the node as it is shown. `guests`: numbers for pods that
    are shown on further nodes; one pod may be shown on many nodes and run on one.
    """
    with ExitStack() as undone:
        with _waking_nobody(state):
            for row, view in views.items():
                _change(state, row, view, guests, undone)
            state.cluster.settle()
        try:
            yield
        finally:
            with _waking_nobody(state):
                undone.close()
                state.cluster.settle()


def _change(state: SchedulerState, row: int, view: NodeView, guests: Iterator[int], undone: ExitStack) -> None:
    name = state.nodes.names[row]
    if view.node is not None:
        undone.callback(_show, state, row, state.mirror.nodes[name], state.nodes.shape_of(row))
        _show(state, row, view.node, _shape_as(state, name, view.node))
    for uid in view.without:
        if state.assumed.ledgers.set_aside(name, uid):
            undone.callback(state.assumed.ledgers.put_back, name, uid)
    for more in view.further_pods:
        pod_info = _occupant(state, more, f"{more.metadata.uid}@{next(guests)}")
        state.cluster.accounting.take(row, pod_info)
        undone.callback(state.cluster.accounting.give, row, pod_info)


@contextmanager
def _waking_nobody(state: SchedulerState) -> Generator[None]:
    """Let pods come and go inside this context without waking pods that wait for pods elsewhere or for storage."""
    moves, helped = state.cluster.population.moves, state.books.volumes.take_helped()
    try:
        yield
    finally:
        state.hints.population_moves_seen += state.cluster.population.moves - moves
        state.books.volumes.helped = helped


def _show(state: SchedulerState, row: int, node: Node, shape: NodeShape) -> None:
    state.nodes.put(state.nodes.names[row], shape)
    for follower in state.cluster.node_followers:
        follower.put_node(row, node)


def _shape_as(state: SchedulerState, name: str, node: Node) -> NodeShape:
    """Return the shape of a changed node. The manager's decisions about the node override its object."""
    shape, policy = node_shape(node), state.mirror.policies.get(name)
    if policy is None:
        return shape
    return replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)


def _occupant(state: SchedulerState, pod: Pod, uid: str) -> PodInfo:
    subject = state.cluster.pod_classes.as_is(pod)
    pod_class = subject.pod_class
    priority = pod.spec.priority or 0
    return PodInfo(uid, pod_class.demand, pod_class, subject.kind, pod, priority, is_guest=True)


Move = Callable[[int, PodInfo], None]


class NodeOffers:
    """Counts for one attempt how many pods of a job fit on each candidate node (see `Offers`). `restriction`: the nodes
    that the pod's PreFilter plugins allow. `now`: Unix seconds.
    """

    def __init__(self, state: SchedulerState, pod: PodRecord, restriction: Restriction, now: float) -> None:
        self._state = state
        self._pod = pod
        self._now = now
        self._refused = 0  # Number of nodes that are left out because they refused a pod of the job
        self._rows = np.flatnonzero(state.nodes.alive) if restriction.rows is None else restriction.rows

    def slots(self, uids: Sequence[str]) -> dict[str, int]:
        """Return node -> number of these pods that fit on it, added one after another; nodes without room are left out.
        All filters apply. Pods of other jobs that are nominated to a node count there. Nodes are tried together unless
        a member's constraints depend on other nodes. A node that refused one of the pods at Reserve is left out for all
        of them, because the plan does not know which of them it would get.
        """
        state = self._state
        left_out = state.refusals.left_out(uids, self._now) if len(state.refusals) else ()
        refused = [row for name in left_out if (row := state.nodes.row(name)) is not None]
        candidates = np.setdiff1d(self._rows, np.array(refused, np.intp)) if refused else self._rows
        self._refused = len(refused)
        members = [record for uid in uids if (record := state.pods.get(uid)) is not None and record.subject is not None]
        found: dict[str, int] = {}
        for rows in self._groups(members, candidates):
            self._count(rows, members, found, ())
        for node in state.nominator.nodes():
            rivals = [rival for rival in state.nominator.rivals_on(node, self._pod) if rival.uid not in uids]
            row = state.nodes.row(node)
            if rivals and row is not None and node in found:
                with_rivals: dict[str, int] = {}
                self._count(np.array([row], np.intp), members, with_rivals, rivals)
                found[node] = min(found[node], with_rivals.get(node, 0))
        return {node: count for node, count in found.items() if count}

    def fit_error(self) -> str:
        """Return one sentence about why the candidate nodes have no room for further pods. See `Offers.fit_error`."""
        state, subject = self._state, self._pod.subject
        assert subject is not None, f"pod {self._pod.uid} has no spec"
        engine = state.engine_of(self._pod)
        entries = sorted(f"{len(each.rows)} {each.reason}" for each in engine.refusals(subject))
        entries += [f"{self._refused} {REASON_OF_JOB}"] if self._refused else []
        text = f"{len(engine.feasible(subject))}/{len(state.nodes)} nodes are available"
        return f"{text}: {', '.join(entries)}." if entries else f"{text}."

    def _groups(self, members: Sequence[PodRecord], rows: Rows) -> Iterator[Rows]:
        for member in members:
            assert member.subject is not None, f"pod {member.uid} has no spec"
            if self._state.engine_of(member).cross_node_filters(member.subject).filters:
                yield from (rows[at : at + 1] for at in range(len(rows)))
                return
        yield rows

    def _count(
        self, rows: Rows, members: Sequence[PodRecord], found: dict[str, int], rivals: Sequence[PodInfo]
    ) -> None:
        state = self._state
        with tried(state) as (take, _):
            for row in row_list(rows) if rivals else ():
                for rival in rivals:
                    take(row, rival)
            for member in members:
                assert member.subject is not None, f"pod {member.uid} has no spec"
                rows = state.engine_of(member).passing(member.subject, rows)
                pod_info = member.pod_info()
                for row in row_list(rows):
                    node = state.nodes.names[row]
                    found[node] = found.get(node, 0) + 1
                    take(row, msgspec.structs.replace(pod_info, uid=f"{member.uid}@{row}", is_guest=True))


@contextmanager
def tried(state: SchedulerState) -> Generator[tuple[Move, Move]]:
    """Yield two functions of a node's position and a pod: the first adds the pod on trial, the second removes it. At
    the end of the context, all changes are undone.
    """
    accounting = state.cluster.accounting
    moved: list[tuple[int, PodInfo, bool]] = []

    def take(row: int, pod_info: PodInfo) -> None:
        accounting.take(row, pod_info)
        moved.append((row, pod_info, True))

    def give(row: int, pod_info: PodInfo) -> None:
        accounting.give(row, pod_info)
        moved.append((row, pod_info, False))

    with accounting.trial():
        try:
            yield take, give
        finally:
            for row, pod_info, is_taken in reversed(moved):
                (accounting.give if is_taken else accounting.take)(row, pod_info)
