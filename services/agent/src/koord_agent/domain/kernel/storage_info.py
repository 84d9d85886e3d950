"""The disk of a device, partition, volume group or pod volume, from sysfs and the mounts of the machine.

Source: agent spec, 6.11, 16. Vectors: blkio, op storage.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

KUBELET_DIR = "/var/lib/kubelet"
"""Folder of a kubelet whose flags name no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageInfo:
    disk_number: Mapping[str, str] = field(default_factory=dict[str, str])  # /dev/<disk> -> MAJ:MIN
    partition_disk: Mapping[str, str] = field(default_factory=dict[str, str])  # /dev/<partition> -> /dev/<disk>
    # Volume group -> /dev/<disk>, only for groups of a single physical volume.
    vg_disk: Mapping[str, str] = field(default_factory=dict[str, str])
    lv_mapper_vg: Mapping[str, str] = field(default_factory=dict[str, str])  # /dev/mapper/<vg>-<lv> -> volume group
    mountpoint_device: Mapping[str, str] = field(default_factory=dict[str, str])  # Mount point -> device
    kubelet_dir: str = KUBELET_DIR

    def disk_of_device(self, device: str) -> str | None:
        """MAJ:MIN of the disk that contains a disk, partition or logical volume; None if it is unknown."""
        disk = self.partition_disk.get(device, device)
        if disk in self.lv_mapper_vg:
            disk = self.vg_disk.get(self.lv_mapper_vg[disk], "")
        return self.disk_number.get(disk)

    def disk_of_group(self, volume_group: str) -> str | None:
        """MAJ:MIN of the disk that contains a volume group; None if it is unknown or has several disks."""
        return self.disk_number.get(self.vg_disk.get(volume_group, ""))

    def disk_of_volume(self, pod_uid: str, volume: str) -> str | None:
        """MAJ:MIN of the disk that contains a CSI volume; None if it is not mounted or its disk is unknown."""
        mount = f"{self.kubelet_dir.rstrip('/')}/pods/{pod_uid}/volumes/kubernetes.io~csi/{volume}/mount"
        device = self.mountpoint_device.get(mount)
        return None if device is None else self.disk_of_device(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One folder of `class/block` in sysfs."""

    name: str  # Name in the kernel, such as `sda1` or `dm-0`
    number: str  # MAJ:MIN
    parent: str = ""  # Name of the disk of a partition; "" for others
    slaves: tuple[str, ...] = ()  # Names of the devices below a device of the device mapper or of software RAID
    mapped_name: str = ""  # Name in the device mapper; "" for others
    mapped_uuid: str = ""  # UUID in the device mapper, which tells what made the device; "" for others

    @property
    def path(self) -> str:
        return f"/dev/mapper/{self.mapped_name}" if self.mapped_name else f"/dev/{self.name}"

    @property
    def is_disk(self) -> bool:
        """Whether it is neither a part of another device nor on top of one, nor a loop device or CD-ROM drive."""
        return not (self.parent or self.slaves or self.mapped_name) and not _NO_DISK.match(self.name)

    @property
    def volume_group(self) -> str:
        """The volume group of a logical volume; "" for other devices."""
        if not self.mapped_uuid.startswith(_LVM):
            return ""
        return _GROUP_END.split(self.mapped_name, maxsplit=1)[0].replace("--", "-")


_LVM: Final = "LVM-"
_NO_DISK: Final = re.compile(r"(loop|sr|md|dm-|ram|zram)[0-9]")
_GROUP_END: Final = re.compile(r"(?<!-)-(?!-)")
"""The hyphen between volume group and logical volume; hyphens in their names are doubled."""


def storage_of(
    devices: Iterable[BlockDevice], mounts: Mapping[str, str], kubelet_dir: str = KUBELET_DIR
) -> StorageInfo:
    """Return the disks of a machine. `mounts` is mount point -> path of the device.

    A volume group has a disk only if all its logical volumes are on one device. A group without logical volumes is
    unknown: the kernel does not have it.
    """
    known = {device.name: device for device in devices}
    below: dict[str, set[str]] = {}
    for device in known.values():
        if device.volume_group:
            below.setdefault(device.volume_group, set()).update(device.slaves)
    partitions = {
        device.path: known[device.parent].path for device in known.values() if device.parent and device.parent in known
    }
    single = {group: known[next(iter(slaves))].path for group, slaves in below.items() if _is_one(slaves, known)}
    return StorageInfo(
        disk_number={device.path: device.number for device in known.values() if device.is_disk},
        partition_disk=partitions,
        vg_disk={group: partitions.get(path, path) for group, path in single.items()},
        lv_mapper_vg={device.path: device.volume_group for device in known.values() if device.volume_group},
        mountpoint_device=dict(mounts),
        kubelet_dir=kubelet_dir,
    )


def _is_one(slaves: Collection[str], known: Collection[str]) -> bool:
    return len(slaves) == 1 and all(slave in known for slave in slaves)


def parse_mounts(mountinfo: str, devices: Iterable[BlockDevice]) -> dict[str, str]:
    """Return mount point -> path of the device, from the text of /proc/<pid>/mountinfo. Invalid lines are skipped.

    The device is known by its number. File systems with a number of their own, such as btrfs, name it.
    """
    paths = {device.number: device.path for device in devices}
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, source = before.split(" "), after.split(" ")
        if separator and len(fields) > _MOUNT_POINT and len(source) > 1:
            device = paths.get(fields[_NUMBER], _ESCAPED.sub(_unescaped, source[1]))
            found[_ESCAPED.sub(_unescaped, fields[_MOUNT_POINT])] = device
    return found


_NUMBER, _MOUNT_POINT = 2, 4
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))
