"""Scores of nodes by the free amounts of their devices: for many nodes at once, for single ones, and by state. Most
pods that share GPUs differ only in the size of their part. So a node is evaluated once for all of them: what pods of
all sizes share is separate from what follows from the size.

Source: scheduler-fine-grained spec, 2.5, 2.6, 2.11
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.config.koordinator_args import DeviceScoringStrategy
from koord_scheduler.domain.framework.node_points import RowStates
from koord_scheduler.domain.plugins.device.columns import Room, TypeColumns
from koord_scheduler.domain.plugins.device.node_states import FITS, NO_DEVICE_OBJECT, NO_GPUS, NodeStates
from koord_scheduler.domain.plugins.device.one_share import part_of_one_gpu
from koord_scheduler.domain.plugins.device.picking import MAX_SCORE, DeviceScoring, device_score
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import insufficient


def device_scores(states: NodeStates, pod: PodDevices, rows: Rows) -> IntArray:
    """Return a score for each node, int64 (K,) within 0..100; 0 without a Device object. `rows`: positions of the
    nodes, shape (K,).
    """
    found = node_scores(_requested(states, pod), _total(pod), states.scoring, rows)
    return np.where(states.has_devices[rows], found, 0)


def device_row_score(states: NodeStates, pod: PodDevices) -> Callable[[int], int]:
    """Return a function that gives the score of `device_scores` for one node position, without arrays."""
    return score_function(_requested(states, pod), _total(pod), states.scoring)


def score_of_reservation(states: NodeStates, pod: PodDevices, row: int, uid: str) -> int:
    """Return the score of the devices of a Reservation for a pod, 0..100; 0 if the Reservation holds no devices."""
    node = states.devices_of(row)
    if node is None:
        return 0
    held, left = node.use.rests.held(uid) or (), node.use.holders.get(uid, ())
    return device_score(_total(pod), _summed(pod, held), _summed(pod, left), states.scoring)


def scoring_of(strategy: DeviceScoringStrategy) -> DeviceScoring:
    """Return the scoring strategy for devices that the arguments of DeviceShare configure."""
    weights = tuple((each.name, each.weight) for each in strategy.resources if each.weight > 0)
    return DeviceScoring(weights, strategy.type == "LeastAllocated")


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


def node_scores(
    types: Iterable[TypeColumns], request: Mapping[str, int], scoring: DeviceScoring, rows: Rows
) -> IntArray:
    """Return a score for each node, int64 (K,) within 0..100, from the sums of capacity and use over its devices. A
    node whose devices have none of the weighted resources gets 0. `request`: what the pod requests in all, by resource
    name. `rows`: positions of the nodes, shape (K,).
    """
    columns = list(types)
    sum_: IntArray = np.zeros(len(rows), np.int64)
    weights: IntArray = np.zeros(len(rows), np.int64)
    for name, weight in scoring.weights:
        for column in columns:
            if name not in column.names:
                continue
            index = column.names.index(name)
            capacity = column.total[index][rows]
            requested = capacity - column.free[index][rows] + request.get(name, 0)
            counts = capacity > 0
            divisor = np.where(counts, capacity, 1)
            taken = np.minimum(requested, capacity)
            part = (capacity - taken if scoring.is_least else taken) * MAX_SCORE // divisor
            sum_ += np.where(counts, weight * part, 0)
            weights += np.where(counts, weight, 0)
    return np.where(weights > 0, sum_ // np.maximum(weights, 1), 0)


def score_function(
    types: Sequence[TypeColumns], request: Mapping[str, int], scoring: DeviceScoring
) -> Callable[[int], int]:
    """Return a function from a node's position to the score that `node_scores` gives it, with the same arguments."""
    items = [
        (weight, column.on_node, column.names.index(name), request.get(name, 0))
        for name, weight in scoring.weights
        for column in types
        if name in column.names
    ]
    is_least = scoring.is_least

    def score(row: int) -> int:
        sum_, weights = 0, 0
        for weight, on_node, index, amount in items:
            node = on_node[row]
            capacity = node.total[index]
            if capacity > 0:
                sum_ += weight * _part(capacity, node.free[index] - amount, is_least)
                weights += weight
        return sum_ // weights if weights else 0

    return score


def room_score_function(
    column: TypeColumns, request: Mapping[str, int], scoring: DeviceScoring
) -> Callable[[Room], int]:
    """Return a function from the `Room` of a node to the score that `node_scores` gives it for this type alone.
    `request`: what the pod requests in all, by resource name.
    """
    items = [
        (weight, column.names.index(name), request.get(name, 0))
        for name, weight in scoring.weights
        if name in column.names
    ]
    is_least = scoring.is_least

    def score(room: Room) -> int:
        total, free = room[2], room[3]
        sum_, weights = 0, 0
        for weight, index, amount in items:
            capacity = total[index]
            if capacity > 0:
                sum_ += weight * _part(capacity, free[index] - amount, is_least)
                weights += weight
        return sum_ // weights if weights else 0

    return score


def _part(capacity: int, left: int, is_least: bool) -> int:
    """Return the score of one resource, 0..100, if this amount of the capacity is left after the pod came."""
    if is_least:
        return left * MAX_SCORE // capacity if left > 0 else 0
    return (capacity - left) * MAX_SCORE // capacity if left > 0 else MAX_SCORE


def shared_states(states: NodeStates, pod: PodDevices) -> RowStates | None:
    """Return how filter codes and scores of a pod follow from the free amounts of a node's GPUs. The results equal
    those of `NodeStates.code_function` and `device_row_score`. Nodes with equal free amounts share them. None if the
    free amounts of single GPUs do not suffice to decide: the pod requests anything but a part of one GPU, has hints,
    requests GPU memory only in bytes, or names an isolation provider. None also if the configuration lists GPU models
    that must not be shared.
    """
    gpu = part_of_one_gpu(pod)
    if gpu is None or states.unsupported or pod.isolation_provider:
        return None
    column, codes_of = states.columns[GPU_TYPE], states.codes_of
    needs = column.needs_of_one(gpu.per_device)
    score = room_score_function(column, gpu.total, states.scoring)
    needs_device = pod.needs_device
    no_cards, too_little = insufficient(GPU_TYPE, is_resolvable=False), insufficient(GPU_TYPE)

    def state(row: int) -> Hashable:
        if not states.has_devices.item(row):
            return None
        return (states.has_tree.item(row), column.on_node[row].room())

    def code_of(state: Hashable) -> int:
        if state is None:
            return codes_of.code(NO_DEVICE_OBJECT) if needs_device else FITS
        is_tree, (has_cards, best, _, _) = cast("tuple[bool, Room]", state)
        if not has_cards:
            return codes_of.code(no_cards)
        for left in best:
            for index, amount in needs:
                if left[index] < amount:
                    break
            else:
                return FITS
        return codes_of.code(NO_GPUS if is_tree else too_little)

    def score_of(state: Hashable) -> int:
        return 0 if state is None else score(cast("tuple[bool, Room]", state)[1])

    return RowStates(GPU_TYPE, state=state, code_of=code_of, score_of=score_of)
