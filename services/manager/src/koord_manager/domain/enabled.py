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
    """Return whether a flag such as `--controllers=*,-nodeslo` enables a controller or plugin.

    The entry `NAME` enables it and `-NAME` disables it; the first of these counts. Without such an entry it is
    enabled if the flag contains `*`.

    Args:
        name: Name of the controller or plugin.
        entries: Entries of the flag.

    Source:
        manager spec, 2.3
    """
    for entry in entries:
        named = entry.removeprefix("-")
        if _ALSO_CALLED.get(named, named) == name:
            return entry == named
    return _EVERYTHING in entries


def enabled_of(names: Iterable[str], entries: Sequence[str]) -> frozenset[str]:
    """Return the names of controllers or plugins that the entries of a flag enable, as `is_enabled` decides."""
    return frozenset(name for name in names if is_enabled(name, entries))
