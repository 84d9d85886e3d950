"""What one cycle sees where transformers have other views of its pod and of nodes; afterwards all is as before.

    before_filter of each plugin -> the columns show its nodes, `Sight` its pods -> filters, preemption -> taken back

Views are put on the columns as facts are, so every kept answer follows, row by row.

source    scheduler-core spec, 1 (step 6), 3 (FilterTransformer)
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from koordcore.protocol.objects import Node, Pod

from koord_scheduler.domain.columns import NodeShape, Rows, node_shape
from koord_scheduler.domain.engine import Engine
from koord_scheduler.domain.occupant import Occupant
from koord_scheduler.domain.plugins.interface import Rejection
from koord_scheduler.domain.plugins.transforming import NodeView
from koord_scheduler.domain.pods import PodRecord
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.templates import Subject
from koord_scheduler.domain.views.verdicts import Refusals


@dataclass(frozen=True, slots=True)
class Sight:
    """As what the nodes judge the pod.

    subject    where nothing else is said
    apart      as what, and which rows; no row twice
    """

    subject: Subject
    apart: tuple[tuple[Subject, Rows], ...] = ()

    def at(self, row: int) -> Subject:
        """As what one node judges it."""
        return next((subject for subject, rows in self.apart if row in rows), self.subject)

    def parts(self, rows: Rows) -> list[tuple[Subject, Rows]]:
        """Some rows by what they judge; each row once, nothing without rows."""
        rest, found = rows, list[tuple[Subject, Rows]]()
        for subject, part in self.apart:
            found.append((subject, np.intersect1d(rows, part, assume_unique=True)))
            rest = np.setdiff1d(rest, part, assume_unique=True)
        return [(subject, part) for subject, part in ((self.subject, rest), *found) if len(part)]

    def resolvable(self, engine: Engine) -> Rows:
        """See `Engine.resolvable`."""
        if not self.apart:
            return engine.resolvable(self.subject)
        found = [
            np.intersect1d(engine.resolvable(subject), rows, assume_unique=True)
            for subject, rows in self.parts(np.flatnonzero(engine.nodes.alive))
        ]
        return np.sort(np.concatenate([*found, np.zeros(0, np.intp)]))

    def refusals(self, engine: Engine) -> list[tuple[Subject, Refusals]]:
        """See `Engine.refusals`; with whom they refuse."""
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
def seen(state: SchedulerState, pod: PodRecord, rows: Rows) -> Generator[Sight | Rejection]:
    """In here things are as the filter transformers of the pod's profile see them; or how one of them refused.

    rows    that come into question
    """
    framework = state.framework_of(pod)
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
    parts: list[tuple[Pod, Rows]] = [(pod.pod, rows)]
    with ExitStack() as views:
        for plugin in framework.profile.before_filters:
            after: list[tuple[Pod, Rows]] = []
            for judged, part in parts:
                answer = plugin.before_filter(judged, state.nodes, part)
                if isinstance(answer, Rejection):
                    yield answer
                    return
                rest = part
                if answer is not None:
                    views.enter_context(_viewed(state, answer.nodes))
                    for own, instead in answer.pods:
                        after.append((instead, np.intersect1d(own, rest)))
                        rest = np.setdiff1d(rest, own)
                after.append((judged, rest))
            parts = [(judged, part) for judged, part in after if len(part)]
        apart = tuple((framework.subject_of(judged), part) for judged, part in parts if judged is not pod.pod)
        yield Sight(pod.subject, apart)


@contextmanager
def _viewed(state: SchedulerState, views: Mapping[int, NodeView]) -> Generator[None]:
    with ExitStack() as undone:
        for row, view in views.items():
            name = state.nodes.names[row]
            if view.node is not None:
                undone.callback(_show, state, row, state.node_objects[name], state.nodes.shape_of(row))
                _show(state, row, view.node, _shape_as(state, name, view.node))
            for uid in view.without:
                if state.ledgers.set_aside(name, uid):
                    undone.callback(state.ledgers.put_back, name, uid)
            for more in view.beside:
                occupant = _occupant(state, more)
                state.cluster.occupancy.take(row, occupant)
                undone.callback(state.cluster.occupancy.give, row, occupant)
        yield


def _show(state: SchedulerState, row: int, node: Node, shape: NodeShape) -> None:
    state.nodes.put(state.nodes.names[row], shape)
    for follower in state.cluster.node_followers:
        follower.put_node(row, node)


def _shape_as(state: SchedulerState, name: str, node: Node) -> NodeShape:
    """With what the manager lends there, which stands before what the object says."""
    shape, policy = node_shape(node), state.policies.get(name)
    if policy is None:
        return shape
    return replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)


def _occupant(state: SchedulerState, pod: Pod) -> Occupant:
    subject = state.cluster.templates.as_is(pod)
    template = subject.template
    return Occupant(pod.metadata.uid, template.demand, template, subject.kind, pod, pod.spec.priority or 0)
