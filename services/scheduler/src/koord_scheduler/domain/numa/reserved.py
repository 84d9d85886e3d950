"""CPUs of a node that are never given to pods by the scheduler.

Source: scheduler-fine-grained spec, 1.2 and 4.3; vectors scheduler/node_reserved_cpus.
"""

from collections.abc import Iterable, Mapping

from koordcore.protocol.annotations.cpu import KubeletCpuManagerPolicy, KubeletCpus, parse_system_qos_resource
from koordcore.protocol.annotations.node import node_reservation, num_reserved_cpus, reported_reserved_cpus
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuTopology

from koord_scheduler.domain.numa.cpu_layout import CpuLayout, CpuMask, known_mask


def reserved_cpus(
    layout: CpuLayout,
    annotations: Mapping[str, str],
    kubelet: KubeletCpuManagerPolicy,
    allocs: Iterable[KubeletCpus],
) -> CpuMask:
    """Return the CPUs of a node that the scheduler never binds to pods.

    These are the CPUs of the node reservation, of pods with QoS SYSTEM, and those that the kubelet reserves or manages.

    Args:
        layout: The CPUs of the node.
        annotations: Annotations with node reservation and CPUs of system QoS; invalid ones count as absent.
        kubelet: CPU manager policy of the kubelet.
        allocs: Pods whose CPUs the kubelet manages.
    """
    texts = [alloc.cpuset for alloc in allocs if alloc.managed_by_kubelet and alloc.uid]
    texts += [kubelet.reserved_cpus, node_reserved_cpus(layout, annotations), _system_cpus(annotations)]
    reserved = 0
    for text in texts:
        reserved |= known_mask(text)
    return reserved


def node_reserved_cpus(layout: CpuLayout, annotations: Mapping[str, str]) -> str:
    """Return the CPUs of the annotation `node.koordinator.sh/reservation` as a Linux list; "" if it reserves none.

    If the reservation is an amount, the CPUs are chosen as the agent chooses them.
    """
    reservation = node_reservation(annotations)
    if reservation.reserved_cpus or num_reserved_cpus(reservation):
        return reported_reserved_cpus(reservation, CpuTopology(layout.places))
    return ""


def _system_cpus(annotations: Mapping[str, str]) -> str:
    try:
        found = parse_system_qos_resource(annotations)
    except InvalidInput:
        return ""
    return found.cpuset if found is not None and found.exclusive else ""


def zone_cpu_left(milli: int, layout: CpuLayout | None, zone: int, reserved: CpuMask) -> int:
    """Return the CPU of a zone minus its reserved CPUs, in milli-cores, at least 0.

    Args:
        milli: CPU of the zone in milli-cores; 0 stays 0.
        layout: The CPUs of the node; None if the node does not report them.
        zone: Id of the zone.
        reserved: CPUs that pods never get.
    """
    if layout is None or not milli or zone not in layout.zones:
        return milli
    return max(0, milli - 1000 * (layout.zones[zone].cpus & reserved).bit_count())
