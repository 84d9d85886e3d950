"""Rules for the allocations of one node: no CPU, device share, virtual function or Reservation is given twice.

    1. Two pods never own one CPU.
    2. The shares of one device never exceed 100 percent.
    3. A virtual function has one holder.
    4. A reservation gives no more than it holds.

A Reservation holds its resources under its own uid, like a pod. Its owners take their share from these resources. So
rules 1 to 3 do not apply between a reservation and its owners, nor between a reservation and a pod that ignores
reservations.

The scheduler refuses a decision that takes part in a violation. A fold accepts every fact, because other schedulers may
violate the rules. `koord verify` reports such violations.

Source: scheduler-fine-grained spec, 1.2 (maxRefCount 1), 2.1, 3.5, 3.9, 6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from koordcore.events.envelope import name_from_token, name_token
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservations import is_operating
from koordcore.protocol.resource_names import FPGA, GPU_CORE, GPU_MEMORY_RATIO, HUAWEI_NPU_DVPP, RDMA
from koordcore.state.aggregates import NodeLedger, PodSpecState
from koordcore.state.cluster import ClusterState
from koordcore.values.allocation import NOTHING, Allocation, is_reservation
from koordcore.values.cpuset import EMPTY, CpuSet, parse_cpuset
from koordcore.values.invalid import InvalidInput

WHOLE_DEVICE: Final = 100
# Device resources that are percentages: a device has 100 of each.
PERCENTAGES: Final = (GPU_CORE, GPU_MEMORY_RATIO, RDMA, FPGA, HUAWEI_NPU_DVPP)
_FINISHED: Final = ("Succeeded", "Failed")


class Holder(Protocol):
    """Something that holds resources of a node: a pod in the node's ledger, or a Reservation."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Resource -> amount that the holder takes from the node: milli-cores for cpu, else whole units."""
        ...

    @property
    def allocation(self) -> Allocation:
        """The CPUs, amounts per NUMA zone, devices and use of a Reservation that the holder has besides requests."""
        ...


class Violation(NamedTuple):
    """A violated rule for the allocations of one node: something is held by two pods, or beyond its limit."""

    subject: str  # Resource that is held twice or beyond its limit, for example `CPU 3`
    holders: tuple[str, ...]  # Uids of its holders, ascending
    taken: int = 0  # Sum of the holders' shares; 0 if the resource cannot be shared
    limit: int = 0  # Largest allowed sum; 0 if the resource cannot be shared

    def sentence(self) -> str:
        """Return a sentence that names the resource, its holders and the limit."""
        holders = ", ".join(self.holders)
        if self.limit or self.taken:
            return f"{self.subject}: {self.taken} of {self.limit} is taken, by {holders}"
        return f"{self.subject} is held by {holders}"


def violations(holders: Mapping[str, Holder]) -> list[Violation]:
    """Return every violation of the four allocation rules (see the module) on one node, in a fixed order. `holders`:
    Uid -> holder: the pods of the node's ledger, Reservations included.
    """
    allocated = {uid: holder for uid, holder in holders.items() if holder.allocation.is_exclusive}
    if not allocated:
        return []
    return [
        *_shared_cpus(allocated),
        *_exceeded_shares(allocated),
        *_shared_functions(allocated),
        *_overdrawn(allocated, holders),
    ]


def objections(holders: Mapping[str, Holder], uid: str, holder: Holder) -> list[Violation]:
    """Return the violations in which `holder` would take part if it were added to a node; empty if it may be added.
    `holders`: uid -> holder, for everything that holds resources of the node now. Violations among them do not count.
    """
    allocation = holder.allocation
    if not allocation.is_exclusive:
        return []
    used = "" if allocation.reservation is None else allocation.reservation.uid
    if not (used or allocation.cpuset or _is_contended(holders, allocation)):
        return []
    cpus = _cpus(allocation.cpuset) if allocation.cpuset else EMPTY
    devices = {(each.type, each.minor) for each in allocation.devices}
    near = {
        other: each for other, each in holders.items() if other == used or _holds(each.allocation, cpus, devices, used)
    }
    near[uid] = holder
    found: list[Violation] = []
    if cpus:
        found += _shared_cpus(near)
    if devices:
        found += _exceeded_shares(near)
        found += _shared_functions(near)
    if used:
        found += _overdrawn(near, near)
    return [each for each in found if uid in each.holders]


def _is_contended(holders: Mapping[str, Holder], allocation: Allocation) -> bool:
    """Return whether rule 2 or 3 may be violated if an allocation is added to a node. This is a cheap check before the
    exact one: True if the shares of a device exceed 100 percent, or if the allocation contains virtual functions.
    Reservations and their owners are not told apart.
    """
    given = [each for holder in holders.values() for each in holder.allocation.devices]
    given += allocation.devices
    for device in allocation.devices:
        if device.virtual_functions:
            return True
        for name in device.amounts:
            if name in PERCENTAGES:
                taken = 0
                for each in given:
                    if each.minor == device.minor and each.type == device.type:
                        taken += max(0, each.amounts.get(name, 0))
                if taken > WHOLE_DEVICE:
                    return True
    return False


def _holds(allocation: Allocation, cpus: CpuSet, devices: Set[tuple[str, int]], reservation: str) -> bool:
    """Return whether an allocation contains one of these CPUs, one of these devices or this Reservation."""
    if allocation is NOTHING:
        return False
    if cpus and allocation.cpuset and not _cpus(allocation.cpuset).isdisjoint(cpus):
        return True
    if devices:
        for each in allocation.devices:
            if (each.type, each.minor) in devices:
                return True
    return bool(reservation) and allocation.reservation is not None and allocation.reservation.uid == reservation


@lru_cache(maxsize=16_384)
def _cpus(cpuset: str) -> CpuSet:
    return parse_cpuset(cpuset)


def _shared_cpus(allocated: Mapping[str, Holder]) -> Iterator[Violation]:
    sets = [_cpus(holder.allocation.cpuset) for holder in allocated.values() if holder.allocation.cpuset]
    if sum(map(len, sets)) == len(EMPTY.union(*sets)):
        return
    owners: dict[int, list[str]] = defaultdict(list)
    for uid, holder in allocated.items():
        if holder.allocation.cpuset:
            for cpu in holder.allocation.cpus:
                owners[cpu].append(uid)
    for cpu in sorted(owners):
        yield from _shared(f"CPU {cpu}", owners[cpu], allocated)


def _shared_functions(allocated: Mapping[str, Holder]) -> Iterator[Violation]:
    owners: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for uid, holder in allocated.items():
        for device in holder.allocation.devices:
            for function in device.virtual_functions:
                owners[device.type, device.minor, function.bus_id].append(uid)
    for key in sorted(owners):
        type_, minor, bus_id = key
        yield from _shared(f"virtual function {bus_id} of {type_} {minor}", owners[key], allocated)


def _shared(subject: str, owners: Sequence[str], allocated: Mapping[str, Holder]) -> Iterator[Violation]:
    """Yield a violation if several holders own the subject, apart from a reservation and its owners."""
    if len(owners) > 1:
        used = {_reservation_of(uid, allocated[uid]) for uid in owners}
        for group in _rivals([uid for uid in owners if uid not in used], allocated):
            if len(group) > 1:
                yield Violation(subject, tuple(sorted(group)))
                return


def _rivals(holders: Sequence[str], allocated: Mapping[str, Holder]) -> list[list[str]]:
    """Return the groups of holders within which the rules apply: one, or two if a pod ignores reservations. The first
    group then is without reservations, the second one without pods that ignore them.
    """
    ignoring = [uid for uid in holders if allocated[uid].allocation.ignores_reservations]
    if not ignoring:
        return [list(holders)]
    pods = [uid for uid in holders if not is_reservation(uid, allocated[uid].allocation)]
    return [pods, [uid for uid in holders if uid not in ignoring]]


def _exceeded_shares(allocated: Mapping[str, Holder]) -> Iterator[Violation]:
    shares: dict[tuple[str, int, str], dict[str, int]] = defaultdict(dict)
    for uid, holder in allocated.items():
        for device in holder.allocation.devices:
            for name, amount in device.amounts.items():
                if amount > 0 and name in PERCENTAGES:
                    of_device = shares[device.type, device.minor, name]
                    of_device[uid] = of_device.get(uid, 0) + amount
    exceeded = sorted([key for key, of_device in shares.items() if sum(of_device.values()) > WHOLE_DEVICE])
    for type_, minor, name in exceeded:
        of_device = shares[type_, minor, name]
        for group in _rivals(list(of_device), allocated):
            taken = _taken({uid: of_device[uid] for uid in group}, allocated)
            if taken > WHOLE_DEVICE:
                yield Violation(f"{name} of {type_} {minor}", tuple(sorted(group)), taken, WHOLE_DEVICE)
                break


def _taken(shares: Mapping[str, int], allocated: Mapping[str, Holder]) -> int:
    """Return the sum of the shares. A reservation only counts with the part that its owners do not use."""
    total = sum(shares.values())
    users: dict[str, int] = defaultdict(int)
    for uid, share in shares.items():
        used = _reservation_of(uid, allocated[uid])
        if used in shares:
            users[used] += share
    return total - sum(min(shares[reservation], share) for reservation, share in users.items())


def _overdrawn(allocated: Mapping[str, Holder], holders: Mapping[str, Holder]) -> Iterator[Violation]:
    users: dict[str, list[str]] = defaultdict(list)
    for uid, holder in allocated.items():
        if _reservation_of(uid, holder) in holders:
            users[_reservation_of(uid, holder)].append(uid)
    for reservation in sorted(users):
        held = holders[reservation].requests
        taken: dict[str, int] = defaultdict(int)
        for uid in users[reservation]:
            used = allocated[uid].allocation.reservation
            for name, amount in used.amounts.items() if used is not None else ():
                taken[name] += amount
        for name in sorted(taken):
            if taken[name] > held.get(name, 0):
                of = tuple(sorted(users[reservation]))
                yield Violation(f"{name} of reservation {reservation}", of, taken[name], held.get(name, 0))


def _reservation_of(uid: str, holder: Holder) -> str:
    """Return the uid of the reservation that the holder uses; empty if it uses none, or is one itself."""
    used = holder.allocation.reservation
    return "" if used is None or is_reservation(uid, holder.allocation) else used.uid


class _BoundByOthers(NamedTuple):
    """A pod that another scheduler bound, with the allocation of its annotations."""

    allocation: Allocation
    requests: Mapping[str, int]


def broken_rules(state: ClusterState) -> dict[str, list[Violation]]:
    """Return node name -> violations of the allocation rules; nodes without a violation are absent. If another
    scheduler bound a pod and no ledger contains it, the pod counts with the allocation in its annotations.
    """
    ledgers = state.of_kind(NodeLedger)
    placed = {uid for ledger in ledgers.values() for uid in ledger.pods}
    holders: dict[str, dict[str, Holder]] = {token: dict(ledger.pods) for token, ledger in ledgers.items()}
    for uid, spec in state.of_kind(PodSpecState).items():
        node = spec.object.spec.node_name
        if node and uid not in placed and spec.object.status.phase not in _FINISHED:
            allocation = allocation_of(spec.object.metadata.annotations)
            holders.setdefault(name_token(node), {})[uid] = _BoundByOthers(allocation, _lendable(spec.object))
    found = {name_from_token(token): violations(holders[token]) for token in sorted(holders)}
    return {name: broken for name, broken in found.items() if broken}


def _lendable(pod: Pod) -> Mapping[str, int]:
    """Return the amounts that another pod may use because the pod has the operating mode Reservation."""
    try:
        return pod_requests(pod) if is_operating(pod) else {}
    except InvalidInput:
        return {}
