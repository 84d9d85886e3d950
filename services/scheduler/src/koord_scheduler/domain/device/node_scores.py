"""Scores of nodes by the free amounts of their devices.

Source: scheduler-fine-grained spec, 2.11.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.device.columns import TypeColumns, node_scores, score_function
from koord_scheduler.domain.device.node_states import NodeStates
from koord_scheduler.domain.device.pod_devices import PodDevices
from koord_scheduler.domain.device.scores import device_score


def device_scores(states: NodeStates, pod: PodDevices, rows: Rows) -> IntArray:
    """Return a score for each node, int64 (K,) within 0..100; 0 without a Device object.

    Args:
        states: The devices of all nodes.
        pod: What the pod requests of devices.
        rows: Positions of the nodes, shape (K,).
    """
    found = node_scores(_requested(states, pod), _total(pod), states.scoring, rows)
    return np.where(states.has_devices[rows], found, 0)


def device_row_score(states: NodeStates, pod: PodDevices) -> Callable[[int], int]:
    """Return a function from a node's position to its score, which works without arrays."""
    return score_function(_requested(states, pod), _total(pod), states.scoring)


def score_of_reservation(states: NodeStates, pod: PodDevices, row: int, uid: str) -> int:
    """Return the score of the devices of a Reservation for a pod, 0..100; 0 if it holds none.

    Args:
        states: The devices of all nodes.
        pod: What the pod requests of devices.
        row: Position of the node.
        uid: Uid of the Reservation.
    """
    node = states.devices_of(row)
    if node is None:
        return 0
    held, left = node.use.rests.held(uid) or (), node.use.holders.get(uid, ())
    return device_score(_total(pod), _summed(pod, held), _summed(pod, left), states.scoring)


def _summed(pod: PodDevices, devices: Iterable[AllocatedDevice]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for device in devices:
        if device.type in pod.requests:
            found.update(device.amounts)
    return found


def _requested(states: NodeStates, pod: PodDevices) -> list[TypeColumns]:
    return [states.columns[type_] for type_ in pod.requests]


def _total(pod: PodDevices) -> dict[str, int]:
    return {name: amount for request in pod.requests.values() for name, amount in request.total.items()}
