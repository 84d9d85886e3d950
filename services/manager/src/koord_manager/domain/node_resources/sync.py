"""Whether a node's extended resources have to be written: first time, long ago, or moved by more than a share.

source    manager spec, 5.8
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from koordcore.protocol.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
    MID_CPU,
    MID_MEMORY,
    RDMA,
)

COMPARED: Final = (
    MID_CPU,
    MID_MEMORY,
    BATCH_CPU,
    BATCH_MEMORY,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
    RDMA,
)
"""The resources whose change makes a write; native cpu and memory are the kubelet's."""


class SyncNeed(NamedTuple):
    """Why a node's status has to be written: resources that changed, or the last write is too old (or never was)."""

    changed: tuple[str, ...]
    expired: bool

    @property
    def is_needed(self) -> bool:
        """Whether it has to be written at all."""
        return self.expired or bool(self.changed)


def sync_need(
    old: Mapping[str, int],
    new: Mapping[str, int],
    *,
    diff_threshold: float,
    update_threshold_seconds: float,
    seconds_since_last: float | None,
) -> SyncNeed:
    """Compares what is published with what was computed.

    old, new             resource -> milli-units; a resource that is not published is absent
    seconds_since_last   since the last write; None: there was none

    source    manager spec, 5.8; vectors manager/need_sync
    """
    changed = tuple(name for name in COMPARED if differs(old.get(name), new.get(name), diff_threshold))
    return SyncNeed(changed, seconds_since_last is None or seconds_since_last > update_threshold_seconds)


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether an amount appears, disappears, or moves by more than the share of its old value (strictly more).

    source    manager spec, 5.8
    """
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold
