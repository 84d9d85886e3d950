"""Decide whether the extended resources of a node have changed enough to be written.

Source:
    manager spec, 5.8
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from koordcore.protocol import resource_names as names

from koord_manager.domain.node_resources.devices import GPU_RESOURCES

COMPARED: Final = (
    names.MID_CPU,
    names.MID_MEMORY,
    names.BATCH_CPU,
    names.BATCH_MEMORY,
    *GPU_RESOURCES,
    names.RDMA,
)
"""Resources whose change causes a write; native cpu and memory are the kubelet's."""


class SyncNeed(NamedTuple):
    """Reasons to publish the extended resources of a node again.

    Attributes:
        changed: Names of the resources that changed by more than the threshold.
        expired: Whether the last publication is older than the limit, or nothing was published.
    """

    changed: tuple[str, ...]
    expired: bool


def sync_need(
    old: Mapping[str, int],
    new: Mapping[str, int],
    *,
    diff_threshold: float,
    update_threshold_seconds: float,
    seconds_since_last: float | None,
) -> SyncNeed:
    """Compare published resources of a node with newly computed ones. Return the reasons to publish the new ones.

    Args:
        old: Published resource -> milli-units.
        new: Computed resource -> milli-units.
        diff_threshold: Share of the old amount, such as 0.1. Only a larger change is a reason to publish.
        update_threshold_seconds: Age from which the last publication is too old.
        seconds_since_last: Time since the last publication, or None if there was none.

    Source:
        manager spec, 5.8; vectors manager/need_sync
    """
    changed = tuple(name for name in COMPARED if differs(old.get(name), new.get(name), diff_threshold))
    return SyncNeed(changed, seconds_since_last is None or seconds_since_last > update_threshold_seconds)


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Return whether an amount appears, disappears, or changes by more than `threshold` times the old amount.

    Args:
        old: Old amount, or None if there was none.
        new: New amount, or None if there is none.
        threshold: Share of the old amount.

    Source:
        manager spec, 5.8
    """
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold
