"""The resctrl group of a pod that requests cache ways or memory bandwidth in its annotation.

Source: runtime spec, 3.8. Vectors: resctrl_hook.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
from koordcore.protocol.lenient_json import decode

from koord_agent.domain.hooks.resctrl import AMD_GBPS_AT_100, AMD_UNLIMITED
from koord_agent.domain.kernel.resctrl_files import AMD, INTEL, L3, MB

GROUP_PREFIX: Final = "koordlet-"
RANGE_ENDS: Final = 2


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
    """Return the name of the resctrl group for a pod that has its own group, from the UID of the pod."""
    return GROUP_PREFIX + uid


def pod_schemata(annotation: str, *, cbm_mask: str, cache_ids: Sequence[int], vendor: str) -> str:
    """Return the schemata text for the resctrl group of a pod: at most one line for L3 and one for MB.

    Args:
        annotation: Text of the annotation node.koordinator.sh/resctrl.
        cbm_mask: Mask of all cache ways in hexadecimal.
        cache_ids: Ids of the caches of the machine.
        vendor: Vendor of the CPU.

    Returns:
        The lines. A line is left out unless the annotation has a value for every cache and no unknown cache. "" sets
        no limit.

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
    """Return cache id -> mask of cache ways for the L3 part of the annotation.

    Parsing stops at the first invalid range.
    """
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
