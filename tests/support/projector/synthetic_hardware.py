"""CPUs and devices of one synthetic machine: a small allocator, so that pictures and tests have believable holders."""

from collections.abc import Sequence
from typing import Any

from koordcore.values.allocation import NOTHING, AllocatedDevice, Allocation, VirtualFunction, ZoneAmounts
from koordcore.values.cpuset import format_cpuset
from support.hardware import GPU_MEMORY, device_document, topology_document

ZONES = 2
FUNCTIONS = 4
WHOLE = 100


class SyntheticHardware:
    """The free hardware of a machine of two sockets, one zone each, two threads a core."""

    def __init__(self, name: str, cpus: int, gpus: int) -> None:
        self.cores = cpus // 2
        self.gpus = gpus
        self.topology = topology_document(name, cores=self.cores // ZONES)
        self.device: dict[str, Any] | None = device_document(name, gpus=gpus, functions=FUNCTIONS) if gpus else None
        self._free_cores = set(range(self.cores))
        self._free_share = dict.fromkeys(range(gpus), WHOLE)
        self._held: dict[str, Allocation] = {}

    def take(self, uid: str, *, bound_cpus: int, whole_gpus: int, share: int) -> Allocation:
        """Return what a pod gets: whole cores of one zone, whole cards, or a share of one card; `NOTHING` if none."""
        cores, zone = self._whole_cores(bound_cpus // 2) if bound_cpus % 2 == 0 else ((), 0)
        devices = self._whole_cards(whole_gpus) if whole_gpus else self._part(share)
        if not cores and not devices:
            return NOTHING
        cpus = [*cores, *(core + self.cores for core in cores)]
        allocation = Allocation(
            cpuset=format_cpuset(cpus),
            cpu_bind_policy="FullPCPUs" if cores else "",
            zones=(ZoneAmounts(zone, {"cpu": len(cpus) * 1000}),) if cores else (),
            devices=tuple(devices),
        )
        self._held[uid] = allocation
        return allocation

    def give_back(self, uid: str) -> None:
        """Free what a pod holds."""
        allocation = self._held.pop(uid, NOTHING)
        self._free_cores |= {cpu for cpu in allocation.cpus if cpu < self.cores}
        for device in allocation.devices:
            if device.type == "gpu":
                self._free_share[device.minor] += device.amounts["koordinator.sh/gpu-memory-ratio"]

    def _whole_cores(self, count: int) -> tuple[Sequence[int], int]:
        of_zone = self.cores // ZONES
        for zone in range(ZONES):
            free = sorted(core for core in self._free_cores if core // of_zone == zone)
            if 0 < count <= len(free):
                self._free_cores -= set(free[:count])
                return free[:count], zone
        return (), 0

    def _whole_cards(self, count: int) -> list[AllocatedDevice]:
        free = [minor for minor in sorted(self._free_share, reverse=True) if self._free_share[minor] == WHOLE]
        chosen = sorted(free[:count]) if len(free) >= count else []
        devices = [self._gpu(minor, WHOLE) for minor in chosen]
        for switch in sorted({minor // 2 for minor in chosen}) if count > 1 else ():
            function = VirtualFunction(count % FUNCTIONS, f"0000:{switch + 160:02x}:00.{count % FUNCTIONS + 2}")
            amounts = {"koordinator.sh/rdma": 1}
            devices.append(AllocatedDevice(type="rdma", minor=switch, amounts=amounts, virtual_functions=(function,)))
        return devices

    def _part(self, share: int) -> list[AllocatedDevice]:
        fits = [minor for minor, free in self._free_share.items() if 0 < share <= free]
        chosen = min(fits, key=lambda minor: (self._free_share[minor], minor), default=None)
        return [] if chosen is None else [self._gpu(chosen, share)]

    def _gpu(self, minor: int, share: int) -> AllocatedDevice:
        self._free_share[minor] -= share
        amounts = {
            "koordinator.sh/gpu-core": share,
            "koordinator.sh/gpu-memory": GPU_MEMORY * share // WHOLE,
            "koordinator.sh/gpu-memory-ratio": share,
        }
        return AllocatedDevice(type="gpu", minor=minor, id=f"GPU-{minor:02d}", amounts=amounts)
