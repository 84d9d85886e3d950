"""The disk of a device, partition, volume group or pod volume, from outputs of machine tools.

Source: agent spec, 6.11, 16. Vectors: blkio, op storage.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_PAIR = re.compile(r'([A-Z:_-]+)="((?:[^"\\]|\\.)*)"')
MINORS_PER_DISK = 16
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


def parse_storage(
    *,
    lsblk: str,
    vgs: str,
    lvs: str,
    findmnt: str,
    parents: Mapping[str, str] | None = None,
    kubelet_dir: str = KUBELET_DIR,
) -> StorageInfo:
    """Parse the outputs of lsblk, vgs, lvs and findmnt. Invalid lines are skipped.

    `parents` maps partitions to disks of the kernel (`/sys/class/block`), names without /dev/. For a missing partition,
    the disk with minor - minor % 16 is assumed, which is wrong for NVMe (D-11).
    """
    disks: dict[str, str] = {}
    partitions: dict[str, str] = {}
    rows = [dict(_PAIR.findall(line)) for line in lsblk.splitlines()]
    for row in rows:
        if row.get("TYPE") == "disk" and "NAME" in row and "MAJ:MIN" in row:
            disks[f"/dev/{row['NAME']}"] = row["MAJ:MIN"]
    by_number = {number: disk for disk, number in disks.items()}
    for row in rows:
        if row.get("TYPE") != "part" or "NAME" not in row:
            continue
        disk = f"/dev/{parents[row['NAME']]}" if parents and row["NAME"] in parents else None
        if disk is None:
            major, _, minor = row.get("MAJ:MIN", "").partition(":")
            if not minor.isdecimal():
                continue
            disk = by_number.get(f"{major}:{int(minor) - int(minor) % MINORS_PER_DISK}")
        if disk is not None:
            partitions[f"/dev/{row['NAME']}"] = disk
    groups: dict[str, str] = {}
    for line in vgs.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] == "1":
            groups[words[0]] = partitions.get(words[2], words[2])
    volumes: dict[str, str] = {}
    for line in lvs.splitlines():
        words = line.split()
        if len(words) == 2:
            volume, group = words
            volumes[f"/dev/mapper/{group.replace('-', '--')}-{volume.replace('-', '--')}"] = group
    mounts = [dict(_PAIR.findall(line)) for line in findmnt.splitlines()]
    return StorageInfo(
        disk_number=disks,
        partition_disk=partitions,
        vg_disk=groups,
        lv_mapper_vg=volumes,
        mountpoint_device={m["TARGET"]: m["SOURCE"] for m in mounts if "TARGET" in m and "SOURCE" in m},
        kubelet_dir=kubelet_dir,
    )
