"""Last-level cache and memory bandwidth of a QoS class, or of a pod that asks for them: lines of its resctrl group.

Intel counts bandwidth in percent (tens), AMD in Gb/s per core complex. `schemata_of_class` returns the lines that a
group should have, and `changed` the lines that have to be written. `resctrl_files` parses the present lines.

Source: agent spec, 15; runtime spec, 3.8. Vectors: resctrl_schemata, resctrl_hook.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.config.node_strategies import ResctrlQos
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.qos import QosClass

from koord_agent.domain.kernel.resctrl_files import AMD, INTEL, L3, MB, Schemata, needs_write
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.node.policies import section

PLUGIN = "ResctrlReconcile"
GROUP_OF_QOS: Mapping[str, str] = {QosClass.LSE: "LSR", QosClass.LSR: "LSR", QosClass.LS: "LS", QosClass.BE: "BE"}
CLASS_OF_GROUP: Mapping[str, str] = {"LSR": "lsrClass", "LS": "lsClass", "BE": "beClass"}
AMD_UNLIMITED = 2048
AMD_GBPS_AT_100 = 160
GROUP_PREFIX: Final = "koordlet-"
RANGE_ENDS: Final = 2


def l3_mask(cbm_mask: str, share: ResctrlQos) -> int | None:
    """Return the cache ways of a share: bits [ceil(w * start / 100), ceil(w * end / 100)) of a mask of w ways.

    `cbm_mask` has all ways in hexadecimal, contiguous ones from bit 0. None if the line must not be changed: mask or
    range is invalid, or no way is left (D-24).
    """
    start, end = share.cat_range_start_percent, share.cat_range_end_percent
    try:
        full = int(cbm_mask.strip(), 16)
    except ValueError:
        return None
    if full <= 0 or full & (full + 1) or start is None or end is None:
        return None
    return _mask(full, (start, end)) or None


def bandwidth(vendor: str, percent: int | None) -> int | None:
    """Return the value of an MB line for a share of memory bandwidth.

    Intel: percent, rounded up to tens. AMD: int(160 * percent / 100), and 2048 for 100 %. None if the line must not be
    changed: the percentage is absent or outside 1..100, or the vendor is unknown.
    """
    if percent is None or not 1 <= percent <= 100:
        return None
    return _bandwidth(vendor, percent) or None


def limits_bandwidth(strategy: Mapping[str, Any]) -> bool:
    """Whether an enabled class of a `resourceQOSStrategy` (JSON) gets less than all memory bandwidth."""
    shares = (section(strategy, name, "resctrlQOS").get("mbaPercent") for name in enabled_classes(strategy))
    return any(share not in (None, 100) for share in shares)


def lines(schemata: Schemata) -> tuple[str, ...]:
    """With their newlines. The kernel needs one write for each line."""
    found: list[str] = []
    if schemata.l3:
        found.append(f"{L3}:" + "".join(f"{i}={value:x};" for i, value in sorted(schemata.l3.items())) + "\n")
    if schemata.mb:
        found.append(f"{MB}:" + "".join(f"{i}={value};" for i, value in sorted(schemata.mb.items())) + "\n")
    return tuple(found)


def schemata_of_class(share: ResctrlQos, *, cbm_mask: str, cache_ids: Sequence[int], vendor: str) -> Schemata:
    """All caches get the same value."""
    mask, amount = l3_mask(cbm_mask, share), bandwidth(vendor, share.mba_percent)
    return Schemata(
        l3={} if mask is None else dict.fromkeys(cache_ids, mask),
        mb={} if amount is None else dict.fromkeys(cache_ids, amount),
    )


def changed(current: Schemata, wanted: Schemata) -> Schemata:
    """Return the part of `wanted` that differs from `current`; empty if they are equal."""
    return Schemata(
        l3=wanted.l3 if wanted.l3 and needs_write(current, L3, wanted.l3) else {},
        mb=wanted.mb if wanted.mb and needs_write(current, MB, wanted.mb) else {},
    )


def enabled_classes(strategy: Mapping[str, Any]) -> tuple[str, ...]:
    """The QoS classes of a `resourceQOSStrategy` (JSON) whose resctrl group is switched on."""
    return tuple(name for name in CLASS_OF_GROUP.values() if section(strategy, name, "resctrlQOS").get("enable"))


def group_of_pod(pod: AgentPod, enabled_classes: Iterable[str]) -> str | None:
    """Return the name of the resctrl group of a QoS class to which the threads of a pod belong.

    None if the pod is neither Pending nor Running, if it has its own group, or if its class is not enabled.
    """
    if not pod.is_active or keys.RESCTRL in pod.annotations:
        return None
    group = GROUP_OF_QOS.get(pod.qos)
    return group if group is not None and CLASS_OF_GROUP[group] in set(enabled_classes) else None


def missing_tasks(wanted: Iterable[int], current: str) -> tuple[int, ...]:
    """Return the thread ids of `wanted` that the text of a group's file `tasks` lacks, ascending.

    The caller must write each id separately.
    """
    present = {int(line) for line in current.split() if line.isdecimal()}
    return tuple(sorted(set(wanted) - present))


class _Schemata(msgspec.Struct, rename={"cache_id": "cacheID"}):
    cache_id: int = 0
    percent: int = 0
    range: list[int] = []


class _Part(msgspec.Struct, rename="camel"):
    schemata: _Schemata = msgspec.field(default_factory=_Schemata)
    schemata_per_cache: list[_Schemata] = []


class _Wanted(msgspec.Struct):
    llc: _Part = msgspec.field(default_factory=_Part)
    mb: _Part = msgspec.field(default_factory=_Part)


def group_name(uid: str) -> str:
    """The group of a pod that has its own."""
    return GROUP_PREFIX + uid


def pod_schemata(annotation: str, *, cbm_mask: str, cache_ids: Sequence[int], vendor: str) -> str:
    """Return the schemata text for the resctrl group of a pod: at most one line for L3 and one for MB.

    "" sets no limit.

    A line is left out unless the annotation has a value for every cache and no unknown cache.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    wanted = decode(annotation, _Wanted)
    bandwidth = dict.fromkeys(cache_ids, 0)
    if wanted.mb.schemata.percent:
        bandwidth = dict.fromkeys(cache_ids, _bandwidth(vendor, wanted.mb.schemata.percent))
    bandwidth.update((one.cache_id, _bandwidth(vendor, one.percent)) for one in wanted.mb.schemata_per_cache)
    masks = _masks(wanted.llc, cbm_mask, cache_ids)
    return _line(L3, masks, cache_ids, "x") + _line(MB, bandwidth, cache_ids, "d")


def _masks(llc: _Part, cbm_mask: str, cache_ids: Sequence[int]) -> dict[int, int]:
    """Cache id -> mask of cache ways. Parsing stops at the first invalid range."""
    masks = dict.fromkeys(cache_ids, 0)
    full = int(cbm_mask.strip() or "0", 16)
    if full & (full + 1):
        return masks
    if len(llc.schemata.range) == RANGE_ENDS:
        mask = _mask(full, llc.schemata.range)
        if mask is None:
            return masks
        masks = dict.fromkeys(cache_ids, mask)
    for one in llc.schemata_per_cache:
        mask = _mask(full, one.range)
        if mask is None:
            return masks
        masks[one.cache_id] = mask
    return masks


def _mask(full: int, ends: Sequence[int]) -> int | None:
    if len(ends) != RANGE_ENDS or not 0 <= ends[0] < ends[1] <= 100:
        return None
    ways = full.bit_length()
    start, end = (math.ceil(ways * percent / 100) for percent in ends)
    return (1 << end) - (1 << start)


def _bandwidth(vendor: str, percent: int) -> int:
    if vendor == INTEL:
        return -(-percent // 10) * 10
    if vendor == AMD:
        return AMD_UNLIMITED if percent == 100 else AMD_GBPS_AT_100 * percent // 100
    return 0


def _line(kind: str, values: dict[int, int], cache_ids: Sequence[int], form: str) -> str:
    if not values or set(values) != set(cache_ids) or any(value <= 0 for value in values.values()):
        return ""
    return f"{kind}:" + "".join(f"{cache}={values[cache]:{form}};" for cache in sorted(values)) + "\n"
