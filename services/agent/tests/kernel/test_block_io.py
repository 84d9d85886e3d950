"""Block-IO plans on a v1 kernel with the extensions: devices by name, halved weight under contention, resets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.storage_info import BlockDevice, parse_mounts, storage_of
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.block_io import BlockIoStrategy
from koord_agent.domain.strategies.group_identity import BvtKernel
from koord_agent.domain.strategies.strategy import CycleState, Effects
from koord_agent.shell.collect.storage import REFRESH_MS, Storage, read_block_devices
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.node.machine_settings import RootBlockIo
from support.agent.ruled_kernel import RuledKernel

BE = "kubepods/besteffort"
SECTION: dict[str, Any] = {
    "beClass": {
        "blkioQOS": {
            "enable": True,
            "blocks": [{"name": "/dev/vda1", "type": "device", "ioCfg": {"readBPS": 1048576, "ioWeightPercent": 60}}],
        }
    },
    "cgroupRoot": {"blkioQOS": {"enable": True, "blocks": [{"name": "/dev/vda", "type": "device", "ioCfg": {}}]}},
}


def disks(sys: Path, **options: Any) -> Storage:
    """A disk with one partition, as sysfs has them: the partition is a folder in that of the disk."""
    blocks = sys / "class" / "block"
    disk = sys / "devices" / "vda"
    for folder, number in ((disk, "253:0"), (disk / "vda1", "253:1")):
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
    (disk / "vda1" / "partition").write_text("1\n")
    blocks.mkdir(parents=True)
    for folder in (disk, disk / "vda1"):
        (blocks / folder.name).symlink_to(folder)
    options = {"start": lambda work: work(), **options}  # pyright: ignore[reportUnknownLambdaType]
    return Storage(blocks, sys / "mountinfo", **options)


def look(now_ms: int = 0) -> NodeLook:
    metrics = Metrics(store=SeriesStore(), now_ms=now_ms, interval_ms=1_000)
    layout = CgroupLayout(Driver.CGROUPFS)
    return NodeLook(now_ms=now_ms, node="n", layout=layout, cgroup_version=1, metrics=metrics, pods=())


class Machine:
    """Readings of a kernel with disks."""

    def __init__(self, read: Callable[[CgroupFile], str | None], storage: Storage) -> None:
        self._read = read
        self.disks = storage.known

    def read(self, file: CgroupFile) -> str | None:
        return self._read(file)

    def quota_us(self, directory: str) -> int | None:
        return None

    def group_identity(self) -> BvtKernel:
        return BvtKernel(has_file=False)


def plans_of(machine: Machine, *, halve_weight: bool = False) -> list[Plan]:
    state = CycleState(readings=machine, effects=Effects(halve_io_weight=halve_weight))
    return list(BlockIoStrategy().propose(look(), SECTION, state).plans)


def test_a_partition_is_limited_by_its_disk_and_contention_halves_the_weight(tmp_path: Path) -> None:
    kernel = RuledKernel(
        {CgroupFile(BE, "blkio.throttle.read_bps_device"): "", CgroupFile(BE, "blkio.cost.weight"): ""}
    )
    machine = Machine(kernel.read, disks(tmp_path))
    plans = plans_of(machine)
    assert [(plan.file.key, plan.value) for plan in plans] == [
        (f"{BE}/blkio.cost.weight|253:0", "253:0 60"),
        (f"{BE}/blkio.throttle.read_bps_device|253:0", "253:0 1048576"),
    ]
    halved = plans_of(machine, halve_weight=True)
    assert halved[0].value == "253:0 30"


def test_without_the_kernels_extensions_nothing_is_planned(tmp_path: Path) -> None:
    storage = disks(tmp_path)
    assert plans_of(Machine(lambda _file: None, storage)) == []
    root = RootBlockIo(read=lambda _file: None, write=lambda _file, _line: None, disks=storage.known)
    assert root.apply(SECTION, 0) == []


def test_the_root_gets_its_goals_once_and_a_device_no_longer_configured_is_switched_off(tmp_path: Path) -> None:
    files = {CgroupFile("", "blkio.cost.qos"): "253:16 enable=1", CgroupFile("", "blkio.cost.model"): ""}
    written: list[tuple[str, str]] = []
    storage = disks(tmp_path)
    root = RootBlockIo(read=files.get, write=lambda file, line: written.append((file, line)), disks=storage.known)
    storage.known(0)
    assert root.apply(SECTION, 0) == []
    assert written == [
        ("blkio.cost.model", "253:0 ctrl=auto"),
        ("blkio.cost.qos", "253:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"),
        ("blkio.cost.qos", "253:16 enable=0"),
    ]


def test_two_devices_of_one_file_are_two_knobs(tmp_path: Path) -> None:
    file = "blkio.throttle.read_bps_device"
    kernel = RuledKernel({CgroupFile(BE, file, device): "" for device in ("", "253:0")})
    (plan,) = plans_of(Machine(kernel.read, disks(tmp_path)))
    (outcome,) = CgroupExecutor(kernel, trees=("kubepods",)).apply([plan], 0)  # pyright: ignore[reportArgumentType]
    assert (outcome.result, outcome.file.device) == (Result.WRITTEN, "253:0")


def test_a_disk_that_hangs_holds_up_nothing_and_is_asked_once_at_a_time(tmp_path: Path) -> None:
    started: list[Callable[[], None]] = []
    storage = disks(tmp_path, start=started.append)
    assert storage.known(0) is None
    assert storage.known(10 * REFRESH_MS) is None
    assert len(started) == 1, "the first look-up has not ended"
    started[0]()
    found = storage.known(10 * REFRESH_MS + 1)
    assert found is not None
    assert found.disk_number
    assert len(started) == 2, "what was known is given while it is looked up again"


def test_a_look_up_that_cannot_begin_is_tried_again(tmp_path: Path) -> None:
    has_room = False

    def start(work: Callable[[], None]) -> None:
        if not has_room:
            raise RuntimeError("can't start new thread")
        work()

    storage = disks(tmp_path, start=start)
    assert storage.known(0) is None
    assert (storage.looks.succeeded, storage.looks.failed) == (0, 1)
    has_room = True
    assert storage.known(REFRESH_MS) is not None


def test_volumes_are_looked_for_below_the_folder_of_the_kubelet(tmp_path: Path) -> None:
    mount = "/data/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount"
    (tmp_path / "mountinfo").write_text(f"90 30 253:1 / {mount} rw,relatime shared:1 - ext4 /dev/root rw\n")
    storage = disks(tmp_path, kubelet=Path("/data/kubelet/"))
    storage.known(0)
    found = storage.known(0)
    assert found is not None
    assert found.disk_of_volume("u", "v") == "253:0"


def test_a_logical_volume_is_on_the_disk_below_it_and_a_group_on_two_disks_has_none() -> None:
    disks_ = [BlockDevice(name=name, number=number) for name, number in (("sda", "8:0"), ("sdb", "8:16"))]
    found = storage_of(
        [
            *disks_,
            BlockDevice(name="sda2", number="8:2", parent="sda"),
            BlockDevice(name="dm-0", number="252:0", slaves=("sda2",), mapped_name="my--vg-root", mapped_uuid="LVM-x"),
            BlockDevice(name="dm-1", number="252:1", slaves=("sda2", "sdb"), mapped_name="two-b", mapped_uuid="LVM-y"),
            BlockDevice(name="dm-2", number="252:2", slaves=("sdb",), mapped_name="crypt-a", mapped_uuid="CRYPT-LUKS2"),
            BlockDevice(name="loop3", number="7:3"),
        ],
        {},
    )
    assert found.disk_number == {"/dev/sda": "8:0", "/dev/sdb": "8:16"}
    assert found.disk_of_group("my-vg") == "8:0"
    assert found.disk_of_device("/dev/mapper/my--vg-root") == "8:0"
    assert found.disk_of_group("two") is None
    assert found.disk_of_device("/dev/mapper/crypt-a") is None


def test_mount_points_are_unescaped_and_a_file_system_without_a_disk_names_its_source() -> None:
    text = "1 0 8:2 / /a\\040b rw - ext4 /dev/root rw\n2 0 0:41 / /c rw shared:2 - btrfs /dev/sdb rw\nnonsense - \n"
    assert parse_mounts(text, [BlockDevice(name="sda2", number="8:2", parent="sda")]) == {
        "/a b": "/dev/sda2",
        "/c": "/dev/sdb",
    }


def test_the_disks_of_this_machine_are_known_without_a_program() -> None:
    devices = read_block_devices(Path("/sys/class/block"))
    found = storage_of(devices, parse_mounts(Path("/proc/1/mountinfo").read_text(), devices))
    assert len({device.name for device in devices}) == len(devices)
    assert found.mountpoint_device["/proc"] == "proc"
    assert all(disk in found.disk_number for disk in found.partition_disk.values())
