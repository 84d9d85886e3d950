"""Environment, mounts and device nodes of a container for the devices that the scheduler gave to its pod.

Source: runtime spec, 3.5 (GPUEnvInject, HAMi-core), 3.6 (RDMADeviceInject). Vectors: gpu_env, rdma_env.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import device_entries
from koordcore.protocol.objects import Quantities
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

HAMI_CORE: Final = "HAMi-core"
HAMI_LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_GPU_LOCK: Final = "/tmp/vgpulock"  # noqa: S108 - the path that HAMi-core has compiled in
_WHOLE_CARD: Final = 100
_RDMA_CM: Final = "/dev/infiniband/rdma_cm"
_READ_WRITE_ALL: Final = 0o666


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    source: str  # Path on the machine
    destination: str  # Path in the container
    options: tuple[str, ...] = ("rbind",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CharDevice:
    path: str  # Path of the device node, outside and inside of the container
    major: int
    minor: int
    file_mode: int = _READ_WRITE_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInjection:
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[BindMount, ...] = ()  # Paths of the machine, each with its path in the container
    # Folder to create on the machine with mode 0777, for one of the mounts. If it exists, it is deleted with its
    # contents first. "" for none.
    host_dir: str = ""
    # Why HAMi-core could not be injected, as a sentence. `envs` is injected all the same. "" for no problem.
    problem: str = ""


class DeviceFiles(Protocol):
    def character_device(self, path: str) -> tuple[int, int] | None:
        """Major and minor number of a device node of the machine; None if there is none."""
        ...

    def rdma_names(self, pci_address: str) -> Sequence[str]:
        """Names of the RDMA device files of a PCI function, such as `uverbs0`; empty if there are none."""
        ...


class _NoDevices:
    def character_device(self, path: str) -> tuple[int, int] | None:
        return None

    def rdma_names(self, pci_address: str) -> Sequence[str]:
        return ()


NO_DEVICES: Final[DeviceFiles] = _NoDevices()
"""A machine without devices."""


def gpu_injection(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    pod_uid: str,
    container: str,
    library: str = HAMI_LIBRARY,
    is_monitored: bool = False,
    can_mount: bool = True,
) -> GpuInjection:
    """Return the environment variables and mounts of a container, for the GPUs in the annotation device-allocated.

    Every container of the pod gets all of its GPUs, because the annotation does not name containers. If the labels
    ask for HAMi-core and the first GPU entry is a share of a card, this entry also decides the limits of memory and
    cores.

    Args:
        library: Path of the HAMi-core library, on the machine and in the container.
        is_monitored: Whether the gate HamiCoreVGPUMonitor is on. If not, the result has no `host_dir`.
        can_mount: Whether mounts reach the container. Without them, only the GPUs are made visible, and the result
            has a `problem`.

    Raises:
        InvalidInput: The annotation is malformed, or HAMi-core needs an amount that its first entry lacks.
    """
    gpus = device_entries(annotations).get("gpu")
    if not gpus:
        return GpuInjection()
    envs = {VISIBLE_DEVICES: ",".join(str(gpu.minor or 0) for gpu in gpus)}
    if labels.get(keys.GPU_ISOLATION_PROVIDER) != HAMI_CORE:
        return GpuInjection(envs=envs)
    amounts = gpus[0].resources
    if _amount(amounts, GPU_MEMORY_RATIO) >= _WHOLE_CARD:
        return GpuInjection(envs=envs)
    envs_of_share = {"CUDA_DEVICE_MEMORY_LIMIT": str(_amount(amounts, GPU_MEMORY))}
    if not can_mount:
        return GpuInjection(envs=envs, problem="HAMi-core is not injected: mounts need the NRI mode")
    if GPU_CORE in amounts:
        envs_of_share["CUDA_DEVICE_SM_LIMIT"] = str(_amount(amounts, GPU_CORE))
    envs_of_share["LD_PRELOAD"] = library
    mounts = [BindMount(source=path, destination=path) for path in (library, _GPU_LOCK)]
    folder = posixpath.dirname(library)
    host_dir = ""
    if is_monitored:
        name = f"{pod_uid}_{container}"
        envs_of_share["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{folder}/{name}.cache"
        host_dir = f"{folder}/containers/{name}"
        mounts.append(BindMount(source=host_dir, destination=folder))
    return GpuInjection(envs=envs | envs_of_share, mounts=tuple(mounts), host_dir=host_dir)


def rdma_devices(annotations: Mapping[str, str], files: DeviceFiles) -> tuple[CharDevice, ...]:
    """Return rdma_cm, then one device node for each virtual function of the annotation device-allocated of a pod.

    An entry without virtual functions gives the node of its physical function. Empty if the pod has no RDMA functions.

    Raises:
        InvalidInput: The annotation is malformed, or the machine does not have one of the devices.
    """
    allocated = device_entries(annotations).get("rdma")
    if not allocated:
        return ()
    paths = [_RDMA_CM]
    for device in allocated:
        for address in device.addresses:
            names = files.rdma_names(address)
            if not names:
                raise InvalidInput("a PCI function with an RDMA device on this machine", address, "rdma.id")
            paths.append(f"/dev/infiniband/{min(names)}")
    return tuple(_node(path, files) for path in paths)


def allocated_ids(annotations: Mapping[str, str]) -> dict[str, list[str]]:
    """Return type of a device -> ids, from the annotation device-allocated; PCI addresses for virtual functions.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    return {
        kind: [id_ for entry in entries for id_ in entry.addresses if id_]
        for kind, entries in device_entries(annotations).items()
    }


def _node(path: str, files: DeviceFiles) -> CharDevice:
    numbers = files.character_device(path)
    if numbers is None:
        raise InvalidInput("a character device of this machine", path, "rdma")
    return CharDevice(path=path, major=numbers[0], minor=numbers[1])


def _amount(resources: Quantities, name: str) -> int:
    if name not in resources:
        raise InvalidInput("an amount for a pod with HAMi-core", None, f"gpu[0].resources[{name}]")
    return quantity_from_json(resources[name]).value()
