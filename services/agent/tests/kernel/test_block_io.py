"""Block-IO plans on a v1 kernel with the extensions: devices by name, halved weight under contention, resets."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_files import is_equal, to_file_text
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.io_files import KEY_OF_LIMIT
from koord_agent.domain.kernel.storage_info import BlockDevice, parse_mounts, storage_of
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.block_io import BlockIoStrategy
from koord_agent.domain.strategies.group_identity import BvtKernel
from koord_agent.domain.strategies.runner import Interval
from koord_agent.domain.strategies.strategy import CycleState, Effects
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.storage import REFRESH_MS, Storage, read_block_devices
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.machine_settings import MachineSettings, RootBlockIo
from koordcore.protocol import keys
from support.agent.pods import colocated_pod
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

    def tree(self, directory: str) -> tuple[str, ...]:
        return ()

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
    assert root.apply(SECTION, 0) == ["blkioQOS of cgroupRoot is not in force: this kernel has no io.cost"]
    assert root.apply({}, 0) == []


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


def look_of_v2(*pods: AgentPod) -> NodeLook:
    return replace(look(), cgroup_version=2, pods=pods)


def test_cgroup_v2_gets_the_same_limits_in_its_own_files(tmp_path: Path) -> None:
    """koordinator#2281: nothing was written, and nothing was told."""
    root = tmp_path / "cgroup"
    for directory, files in ((BE, ("io.max", "io.weight")), ("", ("io.cost.qos", "io.cost.model"))):
        (root / directory).mkdir(parents=True, exist_ok=True)
        for name in files:
            (root / directory / name).write_text("default 100\n" if name == "io.weight" else "")
    host = LinuxHost(
        monotonic_ns=lambda: 0, roots=HostRoots(cgroup=root, sys=tmp_path), version=2, layout=look().layout, jiffy=1
    )
    storage = disks(tmp_path)
    storage.known(0)

    def written() -> set[str]:
        state = CycleState(readings=Machine(host.read, storage))
        proposal = BlockIoStrategy().propose(look_of_v2(), SECTION, state)
        told.append(list(proposal.problems))
        outcomes = CgroupExecutor(host, trees=("kubepods",)).apply(proposal.plans, 0)
        return {outcome.file.resource for outcome in outcomes if outcome.result is Result.WRITTEN}

    told: list[list[str]] = []
    assert written() == {"blkio.throttle.read_bps_device"}
    assert [problem.partition(", and")[0] for problem in told[0]] == [
        "ioWeightPercent of best effort is not in force: io.cost of 253:0 is off"
    ]
    assert (root / BE / "io.max").read_text() == "253:0 rbps=1048576"
    assert (root / BE / "io.weight").read_text() == "default 100\n", "the kernel refuses a weight without io.cost"
    settings = MachineSettings(
        host,
        host.roots,
        AgentSettings.model_validate({"feature_gates": "BlkIOReconcile=true"}),
        lambda event, verbosity: None,
        Interval(1_000, 1_000),
    )
    assert settings.storage is not None
    settings.storage = storage
    assert settings.apply(replace(look_of_v2(), slo={"resourceQOSStrategy": SECTION})) == []
    assert (root / "io.cost.qos").read_text() == "253:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"
    assert (root / "io.cost.model").read_text() == "253:0 ctrl=auto"
    (root / BE / "io.max").write_text("253:0 rbps=1048576 wbps=max riops=max wiops=max\n")
    assert written() == {"blkio.cost.weight"}
    assert told[-1] == []
    assert (root / BE / "io.weight").read_text() == "253:0 60"


@pytest.mark.parametrize(
    ("name", "kernel", "wanted", "is_there"),
    [
        ("blkio.throttle.read_bps_device", "253:0 rbps=1048576 wbps=max riops=max wiops=max", "253:0 1048576", True),
        ("blkio.throttle.write_bps_device", "253:0 rbps=1048576 wbps=max riops=max wiops=max", "253:0 1", False),
        ("blkio.throttle.write_bps_device", "253:0 rbps=1048576 wbps=max riops=max wiops=max", "253:0 0", True),
        ("blkio.throttle.read_iops_device", "", "253:0 0", True),
        ("blkio.throttle.read_iops_device", "253:0 rbps=max wbps=max riops=9 wiops=max", "253:0 0", False),
        ("blkio.cost.weight", "default 100", "253:0 100", True),
        ("blkio.cost.weight", "default 50", "253:0 100", False),
        ("blkio.cost.weight", "default 100\n253:0 60", "253:0 60", True),
        ("blkio.cost.weight", "default 100\n253:0 60", "253:0 100", False),
        (
            "blkio.cost.qos",
            "253:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00",
            "253:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000",
            True,
        ),
        ("blkio.cost.qos", "253:0 enable=1 ctrl=user rpct=95.50 rlat=3000", "253:0 enable=1 rpct=95", False),
        ("blkio.cost.qos", "253:16 enable=0 ctrl=auto", "253:0 enable=0", False),
        ("blkio.cost.model", "253:0 ctrl=auto model=linear rbps=1 rseqiops=2", "253:0 ctrl=auto", True),
    ],
)
def test_what_the_kernel_answers_is_not_written_again(name: str, kernel: str, wanted: str, is_there: bool) -> None:
    assert is_equal(name, kernel + "\n", wanted, 2) is is_there


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("blkio.throttle.read_iops_device", "253:0 7", "253:0 riops=7"),
        ("blkio.throttle.write_bps_device", "253:0 0", "253:0 wbps=max"),
        ("blkio.cost.weight", "253:0 30", "253:0 30"),
        ("blkio.cost.weight", "253:0 100", "253:0 default"),
    ],
)
def test_a_line_of_v1_becomes_one_of_v2(name: str, line: str, text: str) -> None:
    assert to_file_text(name, line, 2) == text
    assert to_file_text(name, line, 1) == line


def test_why_limits_are_not_in_force_is_told(tmp_path: Path) -> None:
    storage = disks(tmp_path)
    storage.known(0)
    limits = {"a": '{"blocks":[{"name":"/dev/no","ioCfg":{}}]}', "b": "{"}
    limited, broken = (
        replace(colocated_pod(name, "LS"), annotations={keys.BLKIO_QOS: text}) for name, text in limits.items()
    )
    there = look_of_v2().pod_directory(limited)
    files = {
        CgroupFile(BE, "cgroup.procs"): "",
        CgroupFile(there, "blkio.throttle.read_bps_device"): "",
    }
    state = CycleState(readings=Machine(files.get, storage))
    problems = list(BlockIoStrategy().propose(look_of_v2(limited, broken), SECTION, state).problems)
    assert [problem.partition(": ")[0] for problem in problems] == [
        "block IO of pod default/b is not limited",
        "block IO of best effort is not limited",
        "block IO of pod default/a stays as it is",
    ]
    assert problems[1].endswith("the io controller is off there")
    assert problems[2].endswith("disk of /dev/no is unknown")


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


@pytest.mark.root
def test_the_kernel_takes_a_limit_and_its_reset() -> None:
    """On cgroup v1, and on v2 if the io controller is on in the root."""
    host = LinuxHost(monotonic_ns=lambda: 0, layout=look().layout)
    root = Path("/sys/fs/cgroup") / ("blkio" if host.cgroup_version == 1 else "")
    disk = next((device for device in read_block_devices(Path("/sys/class/block")) if device.is_disk), None)
    if disk is None or not os.access(root, os.W_OK):
        pytest.skip("needs root, a disk, and the controller of block IO")
    name = f"koord-io-{os.getpid()}"
    (root / name).mkdir()
    try:
        if host.read(CgroupFile(name, "blkio.throttle.read_bps_device")) is None:
            pytest.skip("the controller of block IO is off in the root")
        for key in KEY_OF_LIMIT:
            file = CgroupFile(name, key, disk.number)
            for value in (f"{disk.number} 1048576", f"{disk.number} 0"):
                host.write(file, value)
                assert is_equal(key, host.read(file) or "", value, host.cgroup_version)
        if host.cgroup_version == 2:
            for key, value in (("blkio.cost.qos", "enable=1 ctrl=user rpct=95"), ("blkio.cost.weight", "60")):
                file = CgroupFile("" if key == "blkio.cost.qos" else name, key, disk.number)
                host.write(file, f"{disk.number} {value}")
                assert is_equal(key, host.read(file) or "", f"{disk.number} {value}", 2)
            host.write(CgroupFile("", "blkio.cost.qos"), f"{disk.number} enable=0")
    finally:
        (root / name).rmdir()
