"""Trials by arithmetic: whether a pod fits on a node together with other pods, if only requested amounts can refuse it.

This is the usual case: the pod has no host ports, no load thresholds and no constraints on pods elsewhere. A trial that
calls every plugin gives the same answer (tested), but takes ten times as long.

Source: scheduler-core spec, 1.3, 6 (3)
"""

from collections.abc import Iterable
from typing import NamedTuple

from koord_scheduler.domain.cluster.accounting import NodeAccounting
from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.framework.extension_points import AMOUNTS_FILTER
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.plugin import declares


class Needs(NamedTuple):
    """The free amounts that a node must have for a pod."""

    # (resource column of `NodeColumns`, amount) of each resource that the fit filter compares.
    amounts: tuple[tuple[int, int], ...]

    def left(self, nodes: NodeColumns, row: int, rivals: Iterable[PodInfo] = ()) -> dict[int, int]:
        """Resource column -> amount that would stay free with the pod and the `rivals` (such as nominated pods) on the
        node. The pod fits if none is negative.
        """
        left = {column: nodes.free.item(column, row) - amount for column, amount in self.amounts}
        for rival in rivals:
            move(left, rival, -1)
        return left


def needs_of(engine: Engine, subject: Subject) -> Needs:
    """Return the amounts that must be free on a node for pods of a subject, from the profile's filter of requests.
    Empty if the profile has no such filter (extension point AmountsFilter).
    """
    plugin = engine.profile.plugins.one_at(AMOUNTS_FILTER)
    checks = () if plugin is None else plugin.checks_of(subject.pod_class, engine.nodes)
    return Needs(tuple((column, amount) for _, column, amount in checks))


def only_amounts_refuse(engine: Engine, subject: Subject, accounting: NodeAccounting) -> bool:
    """Whether a node can refuse pods of the subject only because of the requests of the pods on it. Then a trial may
    add and subtract amounts instead of calling every plugin.
    """
    followers = accounting.every_follower()
    if engine.cross_node_filters(subject).filters or any(each.may_refuse(subject.pod_class) for each in followers):
        return False
    ids = {id(follower) for follower in followers}
    return all(
        plugin.reads is Reads.SHAPE or declares(plugin, AMOUNTS_FILTER) or id(plugin) in ids
        for _, plugin in engine.answers.asked.of(subject.pod_class).filters
    )


def suffices(left: dict[int, int]) -> bool:
    """No amount in a result of `Needs.left` is negative."""
    return all(amount >= 0 for amount in left.values())


def move(left: dict[int, int], pod_info: PodInfo, sign: int) -> None:
    """Change free amounts in place. `sign`: 1 if the pod leaves the node, -1 if it comes."""
    for column, amount in pod_info.demand.taken:
        if column in left:
            left[column] += sign * amount
