"""Scores of nodes by the free amounts of their devices.

Source: scheduler-fine-grained spec, 2.11.
"""

from collections.abc import Callable

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.device.columns import TypeColumns, node_scores, score_function
from koord_scheduler.domain.device.node_states import NodeStates
from koord_scheduler.domain.device.pod_devices import PodDevices


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


def _requested(states: NodeStates, pod: PodDevices) -> list[TypeColumns]:
    return [states.columns[type_] for type_ in pod.requests]


def _total(pod: PodDevices) -> dict[str, int]:
    return {name: amount for request in pod.requests.values() for name, amount in request.total.items()}
