"""Parts of a GPU by the state of a node: what pods of all sizes share, and what follows from the size.

Most pods that share GPUs differ only in the size of their part. Then a node is evaluated once for all of them.

Source: scheduler-fine-grained spec, 2.5, 2.6, 2.11.
"""

from collections.abc import Hashable
from typing import cast

from koordcore.protocol.hardware.device_requests import GPU_TYPE

from koord_scheduler.domain.device.columns import Room
from koord_scheduler.domain.device.gpus.one_share import part_of_one_gpu
from koord_scheduler.domain.device.node_scores import room_score_function
from koord_scheduler.domain.device.node_states import FITS, NO_DEVICE_OBJECT, NO_GPUS, NodeStates
from koord_scheduler.domain.device.pod_devices import PodDevices
from koord_scheduler.domain.device.refusal import insufficient
from koord_scheduler.domain.framework.node_points import RowStates


def shared_states(states: NodeStates, pod: PodDevices) -> RowStates | None:
    """Return how filter codes and scores of a pod follow from the free amounts of a node's GPUs.

    The results equal those of `NodeStates.code_function` and `device_row_score`. Nodes with equal free amounts share
    them. None if the free amounts of single GPUs do not suffice to decide: the pod requests anything but a part of one
    GPU, has hints, requests GPU memory only in bytes, or names an isolation provider. None also if the configuration
    lists GPU models that must not be shared.
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
