"""Decide which controllers and which node resource plugins run, from the flags.

Source:
    manager spec, 2.2, 2.3
"""

from collections.abc import Iterable, Sequence
from typing import Final

NODE_METRIC: Final = "nodemetric"
NODE_RESOURCE: Final = "noderesource"
NODE_SLO: Final = "nodeslo"
QUOTA_PROFILE: Final = "quotaprofile"
COLOCATION_PROFILE: Final = "colocationprofile"
CONTROLLERS: Final = (NODE_METRIC, NODE_RESOURCE, NODE_SLO, QUOTA_PROFILE, COLOCATION_PROFILE)

MID: Final = "MidResource"
BATCH: Final = "BatchResource"
NORMALIZATION: Final = "CPUNormalization"
AMPLIFICATION: Final = "ResourceAmplification"
GPU: Final = "GPUDeviceResource"
RDMA: Final = "RDMADeviceResource"
PLUGINS: Final = (MID, BATCH, NORMALIZATION, AMPLIFICATION, GPU, RDMA)

_EVERYTHING: Final = "*"
_ALSO_CALLED: Final = {"profile": QUOTA_PROFILE}
"""Names that published manifests use (protocol spec, 11.1)."""


def is_enabled(name: str, entries: Sequence[str]) -> bool:
    """Return whether the value of a flag enables a name.

    `NAME` enables it and `-NAME` disables it; the first of these entries counts. Without one, `*` enables it.

    Source:
        manager spec, 2.3
    """
    for entry in entries:
        named = entry.removeprefix("-")
        if _ALSO_CALLED.get(named, named) == name:
            return entry == named
    return _EVERYTHING in entries


def enabled_of(names: Iterable[str], entries: Sequence[str]) -> frozenset[str]:
    """Return the names that the value of a flag enables."""
    return frozenset(name for name in names if is_enabled(name, entries))
