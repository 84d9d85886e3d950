"""Last-level cache and memory bandwidth of a QoS class: percentages to the lines of its resctrl group.

One interface for Intel (percent in tens) and AMD (Gb/s per core complex). `schemata_of_class` says what a group should
have, `changed` what of it has to be written; `resctrl_files` reads what is there. Source: agent spec, 15; vectors
resctrl_schemata.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass

from koord_agent.domain.kernel.resctrl_files import AMD, INTEL, L3, MB, Schemata, needs_write
from koord_agent.domain.state.pods import AgentPod

PLUGIN = "ResctrlReconcile"
GROUP_OF_QOS: Mapping[str, str] = {QosClass.LSE: "LSR", QosClass.LSR: "LSR", QosClass.LS: "LS", QosClass.BE: "BE"}
CLASS_OF_GROUP: Mapping[str, str] = {"LSR": "lsrClass", "LS": "lsClass", "BE": "beClass"}
AMD_UNLIMITED = 2048
AMD_GBPS_AT_100 = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShare:
    """What a class gets: a range of cache ways and a share of memory bandwidth, percent; None = not configured."""

    cat_start_percent: int | None = None
    cat_end_percent: int | None = None
    mba_percent: int | None = None


def class_share(fields: Mapping[str, Any]) -> ClassShare:
    """The share of a `resctrlQOS` object in wire spelling."""
    return ClassShare(
        cat_start_percent=fields.get("catRangeStartPercent"),
        cat_end_percent=fields.get("catRangeEndPercent"),
        mba_percent=fields.get("mbaPercent"),
    )


def l3_mask(cbm_mask: str, share: ClassShare) -> int | None:
    """The cache ways of a share: bits [ceil(w * start / 100), ceil(w * end / 100)) of a mask of w ways.

    cbm_mask   hexadecimal, contiguous ones from bit 0
    returns    None = must not be written: illegal mask or range, or no way is left (D-24)
    """
    start, end = share.cat_start_percent, share.cat_end_percent
    try:
        full = int(cbm_mask.strip(), 16)
    except ValueError:
        return None
    if full <= 0 or full & (full + 1) or start is None or end is None or not 0 <= start < end <= 100:
        return None
    ways = full.bit_length()
    first, last = math.ceil(ways * start / 100), math.ceil(ways * end / 100)
    mask = (1 << last) - (1 << first)
    return mask if mask > 0 else None


def bandwidth(vendor: str, percent: int | None) -> int | None:
    """The MB value of a share: Intel percent rounded up to tens, AMD int(160 * percent / 100), 100 % = 2048.

    returns    None = must not be written: no percentage of 1..100, or an unknown vendor
    """
    if percent is None or not 1 <= percent <= 100:
        return None
    if vendor == INTEL:
        return -(-percent // 10) * 10
    if vendor == AMD:
        return AMD_UNLIMITED if percent == 100 else AMD_GBPS_AT_100 * percent // 100
    return None


def lines(schemata: Schemata) -> tuple[str, ...]:
    """The lines to write, each with its newline, one write each."""
    found: list[str] = []
    if schemata.l3:
        found.append(f"{L3}:" + "".join(f"{i}={value:x};" for i, value in sorted(schemata.l3.items())) + "\n")
    if schemata.mb:
        found.append(f"{MB}:" + "".join(f"{i}={value};" for i, value in sorted(schemata.mb.items())) + "\n")
    return tuple(found)


def schemata_of_class(share: ClassShare, *, cbm_mask: str, cache_ids: Sequence[int], vendor: str) -> Schemata:
    """What a class's group should have on every cache."""
    mask, amount = l3_mask(cbm_mask, share), bandwidth(vendor, share.mba_percent)
    return Schemata(
        l3={} if mask is None else dict.fromkeys(cache_ids, mask),
        mb={} if amount is None else dict.fromkeys(cache_ids, amount),
    )


def changed(current: Schemata, wanted: Schemata) -> Schemata:
    """The kinds of `wanted` that have to be written; an empty kind never is."""
    return Schemata(
        l3=wanted.l3 if wanted.l3 and needs_write(current, L3, wanted.l3) else {},
        mb=wanted.mb if wanted.mb and needs_write(current, MB, wanted.mb) else {},
    )


def resctrl_settings(section: Mapping[str, Any], class_name: str) -> Mapping[str, Any]:
    """Return the `resctrlQOS` object of a class in a wire `resourceQOSStrategy`; empty if absent."""
    of_class: Mapping[str, Any] = section.get(class_name) or {}
    fields: Mapping[str, Any] = of_class.get("resctrlQOS") or {}
    return fields


def enabled_classes(section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the classes of a wire `resourceQOSStrategy` whose resctrl group is switched on."""
    return tuple(name for name in CLASS_OF_GROUP.values() if resctrl_settings(section, name).get("enable"))


def group_of_pod(pod: AgentPod, enabled_classes: Iterable[str]) -> str | None:
    """The group that a pod's threads belong to; None = none of ours: inactive, own group, or class not enabled."""
    if not pod.is_active or keys.RESCTRL in pod.annotations:
        return None
    group = GROUP_OF_QOS.get(pod.qos)
    return group if group is not None and CLASS_OF_GROUP[group] in set(enabled_classes) else None


def missing_tasks(wanted: Iterable[int], current: str) -> tuple[int, ...]:
    """Thread ids that are not in a group's `tasks` text yet, ascending: one write each, never cached."""
    present = {int(line) for line in current.split() if line.isdecimal()}
    return tuple(sorted(set(wanted) - present))
