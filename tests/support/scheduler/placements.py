"""A log with nodes, the placements that a log holds, and what a scheduler decides by."""

from typing import Any

from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.pod import PodPlaced, PodReleased
from support.scheduler.scheduling import SmallLog, node


def picture(state: SchedulerState) -> dict[str, Any]:
    """Everything that a decision depends on, by name instead of by row."""
    nodes = state.nodes
    return {
        "position": state.log.position,
        "nodes": {
            name: {
                **nodes.amounts_on(row),
                "non_zero": nodes.non_zero[:, row].tolist(),
                "pods": sorted((each.uid, each.priority) for each in state.assumed.ledgers.pod_infos(name)),
            }
            for name in sorted(nodes.node_names())
            if (row := nodes.row(name)) is not None
        },
        "pods": {uid: (pod.phase, pod.node, pod.seq) for uid, pod in sorted(state.pods.items())},
        "known": {
            (name, pod_info.uid)
            for name in nodes.node_names()
            for pod_info in state.assumed.ledgers.pod_infos(name)
            if pod_info.kind is not None
        },
        "nominations": sorted(state.nominator.items()),
        "evictions": state.nominator.evictions,
    }


def log_with(*names: str, **node_fields: str) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name, **node_fields))  # type: ignore[arg-type]
    return log


def placements(log: SmallLog) -> dict[str, str]:
    """Pod -> node by the log; asserts that no pod is placed twice."""
    where: dict[str, str] = {}
    for stored in log.events:
        match CATALOGUE.read(stored):
            case PodPlaced(node=name):
                assert stored.ref.id not in where, f"{stored.ref.id} is placed twice"
                where[stored.ref.id] = name
            case PodReleased():
                del where[stored.ref.id]
            case _:
                pass
    return where
