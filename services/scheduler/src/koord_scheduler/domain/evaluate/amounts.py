"""Compares sums where only amounts can refuse a pod, to find out whether it fits beside other pods.

That is the usual case: no host ports, no thresholds, no constraints on pods elsewhere. Asking every plugin in a trial
gives the same answer (tested) in ten times the time.

Source:
    scheduler-core spec, 1.3, 6 (3)
"""

from collections.abc import Iterable
from typing import NamedTuple

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.evaluate.engine import Engine
from koord_scheduler.domain.framework.extension_points import AMOUNTS_FILTER
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.plugin import declares
from koord_scheduler.domain.nodes.accounting import NodeAccounting
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.pods.info import PodInfo


class Needs(NamedTuple):
    """What a pod needs of a node: column -> amount."""

    amounts: tuple[tuple[int, int], ...]

    def left(self, nodes: NodeColumns, row: int, rivals: Iterable[PodInfo] = ()) -> dict[int, int]:
        """Return column -> what the node has left with the pod and its rivals on it; see `suffices`."""
        left = {column: nodes.free.item(column, row) - amount for column, amount in self.amounts}
        for rival in rivals:
            move(left, rival, -1)
        return left


def needs_of(engine: Engine, subject: Subject) -> Needs:
    """Return what the first filter of amounts compares; nothing in a profile without one."""
    plugin = engine.profile.plugins.one_at(AMOUNTS_FILTER)
    checks = () if plugin is None else plugin.checks_of(subject.pod_class, engine.nodes)
    return Needs(tuple((column, amount) for _, column, amount in checks))


def only_amounts_refuse(engine: Engine, subject: Subject, accounting: NodeAccounting) -> bool:
    """Return whether filters look at nothing of a node's pods but their requests.

    One that follows the pods of nodes has said whether it does so for pods like this (`Follower.may_refuse`).
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
    """Return whether no amount is negative."""
    return all(amount >= 0 for amount in left.values())


def move(left: dict[int, int], pod_info: PodInfo, sign: int) -> None:
    """Add what a pod requests (sign 1, it leaves the node) or subtract it (sign -1, it comes)."""
    for column, amount in pod_info.demand.pairs:
        if column in left:
            left[column] += sign * amount
