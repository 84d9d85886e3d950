"""Kernel parameters of the whole node for the strategy `systemStrategy`.

`koord_agent.shell.node.machine_settings` writes the values that differ.

Source: agent spec, 17. Vectors: sysreconcile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from koord_agent.domain.kernel.cgroup_files import SYSTEM_FILES

PLUGIN = "SystemConfigReconcile"
AUDIT_REASON = "UpdateSystemConfig"
MIN_FREE_KBYTES = "min_free_kbytes"
WATERMARK_SCALE_FACTOR = "watermark_scale_factor"
REAP_BACKGROUND = "reap_background"
SCHED_GROUP_IDENTITY = "sched_group_identity_enabled"
SCHED_IDLE_SAVER = "sched_idle_saver_wmark"
PAGE_CACHE_LIMIT = "pagecache_limit/enabled"
SCHED_FEATURES = "sched_features"
PATHS: Mapping[str, str] = {
    MIN_FREE_KBYTES: "proc/sys/vm/min_free_kbytes",
    WATERMARK_SCALE_FACTOR: "proc/sys/vm/watermark_scale_factor",
    REAP_BACKGROUND: "sys/kernel/mm/memcg_reaper/reap_background",
    SCHED_GROUP_IDENTITY: "proc/sys/kernel/sched_group_identity_enabled",
    SCHED_IDLE_SAVER: "proc/sys/kernel/sched_idle_saver_wmark",
    PAGE_CACHE_LIMIT: "sys/kernel/mm/pagecache_limit/enabled",
    SCHED_FEATURES: "sys/kernel/debug/sched_features",
}
"""Parameter -> file below the roots of procfs and sysfs."""
_RANGES: Mapping[str, tuple[int, int]] = {**SYSTEM_FILES, PAGE_CACHE_LIMIT: (0, 1)}
_SWITCHES = (
    ("watermarkScaleFactor", WATERMARK_SCALE_FACTOR),
    ("memcgReapBackGround", REAP_BACKGROUND),
    ("schedGroupIdentityEnabled", SCHED_GROUP_IDENTITY),
    ("schedIdleSaverWmark", SCHED_IDLE_SAVER),
    ("pageCacheLimitEnabled", PAGE_CACHE_LIMIT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemWrites:
    """Parameter -> value, and scheduler features to write one by one, sorted, as `NAME` or `NO_NAME`."""

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    sched_features: tuple[str, ...] = ()


def system_writes(
    strategy: Mapping[str, Any], *, memory_capacity_bytes: int, sched_features: str | None
) -> SystemWrites:
    """Return the kernel parameters of a `systemStrategy` (JSON). Values out of range are left out.

        min_free_kbytes = capacity / 1024 * factor / 10000

    If the memory is 0, nothing is written. `sched_features` is the kernel's text; None if it has none.
    """
    if memory_capacity_bytes <= 0:
        return SystemWrites()
    values: dict[str, str] = {}
    factor = strategy.get("minFreeKbytesFactor")
    wanted: list[tuple[str, int]] = []
    if factor is not None:
        wanted.append((MIN_FREE_KBYTES, memory_capacity_bytes // 1024 * factor // 10_000))
    wanted.extend((name, value) for field_, name in _SWITCHES if (value := strategy.get(field_)) is not None)
    for name, value in wanted:
        low, high = _RANGES.get(name, (None, None))
        if (low is None or value >= low) and (high is None or value <= high):
            values[name] = str(value)
    return SystemWrites(values=values, sched_features=_features(strategy.get("schedFeatures") or {}, sched_features))


def _features(wanted: Mapping[str, bool], current: str | None) -> tuple[str, ...]:
    if current is None:
        return ()
    found = set(current.split())
    lines = (name if is_on else f"NO_{name}" for name, is_on in wanted.items())
    return tuple(sorted(line for line in lines if line not in found))
