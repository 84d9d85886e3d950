"""CPU amounts on nodes with an amplification ratio: bound CPUs are physical, so they count multiplied by the ratio.

The annotation `node.koordinator.sh/resource-amplification-ratio` makes a node offer more CPU than it has.

Source: scheduler-fine-grained spec, 1.9; vectors scheduler/amplified_cpu_filter.
"""

from koordcore.protocol.amplification import amplify


def amplified_use(used: int, bound_cpus: int, ratio: float) -> int:
    """Return the CPU in use on a node in milli-cores, with bound CPUs multiplied by the amplification ratio.

    If the pods request less than the bound CPUs, return `used` unchanged.

    Args:
        used: CPU that pods request, in milli-cores.
        bound_cpus: Number of CPUs that are bound to pods.
        ratio: Amplification ratio; at most 1 means none.
    """
    bound = 1000 * bound_cpus
    return used - bound + amplify(bound, ratio) if used >= bound > 0 else used


def fits_amplified(
    request: int, *, is_bound: bool, ratio: float, allocatable: int, requested: int, bound_cpus: int
) -> bool:
    """Return whether the CPU request of a pod fits on a node with an amplification ratio.

    Args:
        request: CPU of the pod, in milli-cores; 0 always fits.
        is_bound: Whether the pod binds CPUs. Then its request counts multiplied by the ratio.
        ratio: Ratio of the node. If it is at most 1, the result is always True.
        allocatable: Amplified CPU of the node, in milli-cores.
        requested: CPU that its pods request, in milli-cores.
        bound_cpus: Number of CPUs that are bound to its pods.
    """
    if ratio <= 1 or request <= 0:
        return True
    needed = amplify(request, ratio) if is_bound else request
    return needed <= allocatable - amplified_use(requested, bound_cpus, ratio)
