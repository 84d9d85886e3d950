"""Format amounts for people: cpu in cores, memory and storage in GiB, anything else as a plain number.

cpu 1500 -> 1.5    kubernetes.io/batch-cpu 1500 -> 1.5    memory 3 << 29 -> 1.5Gi    pods 110 -> 110
"""

from typing import Final

from koordcore.protocol.resource_names import BATCH_CPU, CPU, MID_CPU

NOTHING: Final = "-"
_IN_CORES: Final = (CPU, BATCH_CPU, MID_CPU)
_GIB: Final = 1 << 30
_LEAST_GIB: Final = 1e-4


def cores(milli: float | None) -> str:
    """Format milli-cores as cores: 1500 gives `1.5`; None gives `-`."""
    return NOTHING if milli is None else f"{milli / 1000:.10g}"


def gibibytes(amount: int | None) -> str:
    """Format bytes as GiB: `1.5Gi`; below one GiB with two significant digits: `0.25Gi`. None gives `-`.

    Less than 0.0001 GiB, such as the rest of a division into shares, gives `0.0Gi`.
    """
    if amount is None:
        return NOTHING
    found = amount / _GIB
    return f"{found:.2g}Gi" if _LEAST_GIB <= abs(found) < 1 else f"{found:.1f}Gi"


def amount_text(resource: str, amount: int) -> str:
    """Format an amount for people: cpu in cores, memory and storage in GiB, anything else as a plain number.

    Args:
        resource: Name of the resource, for example "cpu" or "kubernetes.io/batch-cpu".
        amount: Milli-cores for cpu (also batch and mid), bytes for memory and storage, else units.
    """
    if resource in _IN_CORES:
        return cores(amount)
    if resource.endswith(("memory", "storage")) or "hugepages-" in resource:
        return gibibytes(amount)
    return str(amount)


def cfs_quota_text(microseconds: int) -> str:
    """Format a CFS quota as cores; a negative quota as `unlimited`.

    Args:
        microseconds: Quota per period of 100 ms.
    """
    return "unlimited" if microseconds < 0 else f"{cores(microseconds // 100)} cores"
