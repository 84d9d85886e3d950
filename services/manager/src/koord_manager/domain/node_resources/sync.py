"""Decide whether the extended resources of a node have changed enough to be written.

Source:
    manager spec, 5.8
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
"""Resources whose change causes a write; native cpu and memory are the kubelet's."""


class SyncNeed(NamedTuple):
    """Reasons to write the extended resources of a node.

    Attributes:
        changed: Names of the resources that changed by more than the threshold.
        expired: Whether the last write is too old, or there was none.
    """

    changed: tuple[str, ...]
    expired: bool

    @property
    def is_needed(self) -> bool:
        """Whether the resources have to be written."""
        return self.expired or bool(self.changed)


def sync_need(
    old: Mapping[str, int],
    new: Mapping[str, int],
    *,
    diff_threshold: float,
    update_threshold_seconds: float,
    seconds_since_last: float | None,
) -> SyncNeed:
    """Compare published resources with computed ones, and return the reasons to write them.

    Args:
        old: Published resource -> milli-units.
        new: Computed resource -> milli-units.
        diff_threshold: Share of the old value that a move has to exceed.
        update_threshold_seconds: Age from which the last write is too old.
        seconds_since_last: Time since the last write, or None if there was none.

    Source:
        manager spec, 5.8; vectors manager/need_sync
    """
    changed = tuple(name for name in COMPARED if differs(old.get(name), new.get(name), diff_threshold))
    return SyncNeed(changed, seconds_since_last is None or seconds_since_last > update_threshold_seconds)


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Return whether an amount appears, disappears, or changes by more than a share of its old value.

    Source:
        manager spec, 5.8
    """
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold
