"""Block-IO plans on a v1 kernel with the extensions: devices by name, halved weight under contention, resets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.shell.collect.storage import REFRESH_MS, Storage
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.node.block_io import BlockIo
from support.agent.ruled_kernel import RuledKernel

BE = "kubepods/besteffort"
OUTPUTS = {
    "lsblk": 'NAME="vda" TYPE="disk" MAJ:MIN="253:0"\nNAME="vda1" TYPE="part" MAJ:MIN="253:1"\n',
    "findmnt": 'TARGET="/" SOURCE="/dev/vda1"\n',
}
SECTION: dict[str, Any] = {
    "beClass": {
        "blkioQOS": {
            "enable": True,
            "blocks": [{"name": "/dev/vda1", "type": "device", "ioCfg": {"readBPS": 1048576, "ioWeightPercent": 60}}],
        }
    },
    "cgroupRoot": {"blkioQOS": {"enable": True, "blocks": [{"name": "/dev/vda", "type": "device", "ioCfg": {}}]}},
}


def run(command: Sequence[str]) -> str:
    return OUTPUTS.get(command[0], "")


def disks(block_devices: Path) -> Storage:
    return Storage(block_devices, run=run, start=lambda work: work())


def look(now_ms: int = 0) -> NodeLook:
    metrics = Metrics(store=SeriesStore(), now_ms=now_ms, interval_ms=1_000)
    layout = CgroupLayout(Driver.CGROUPFS)
    return NodeLook(now_ms=now_ms, node="n", layout=layout, cgroup_version=1, metrics=metrics, pods=())


def test_a_partition_is_limited_by_its_disk_and_contention_halves_the_weight(tmp_path: Path) -> None:
    kernel = RuledKernel(
        {CgroupFile(BE, "blkio.throttle.read_bps_device"): "", CgroupFile(BE, "blkio.cost.weight"): ""}
    )
    roots: list[tuple[str, str]] = []
    block_io = BlockIo(
        read=kernel.read, write_root=lambda file, line: roots.append((file, line)), storage=disks(tmp_path)
    )
    plans = block_io.plans(look(), SECTION, halve_weight=False, ttl_ms=2_000)
    assert [(plan.file.key, plan.value) for plan in plans] == [
        (f"{BE}/blkio.cost.weight|253:0", "253:0 60"),
        (f"{BE}/blkio.throttle.read_bps_device|253:0", "253:0 1048576"),
    ]
    halved = block_io.plans(look(), SECTION, halve_weight=True, ttl_ms=2_000)
    assert halved[0].value == "253:0 30"


def test_without_the_kernels_extensions_nothing_is_planned(tmp_path: Path) -> None:
    block_io = BlockIo(read=lambda _file: None, write_root=lambda _file, _line: None, storage=disks(tmp_path))
    assert block_io.plans(look(), SECTION, halve_weight=False, ttl_ms=2_000) == []
    assert block_io.apply_root(SECTION) == []


def test_the_root_gets_its_goals_once_and_a_device_no_longer_configured_is_switched_off(tmp_path: Path) -> None:
    files = {CgroupFile("", "blkio.cost.qos"): "253:16 enable=1", CgroupFile("", "blkio.cost.model"): ""}
    written: list[tuple[str, str]] = []
    block_io = BlockIo(
        read=lambda file: files.get(file) if file.directory == "" else "",
        write_root=lambda file, line: written.append((file, line)),
        storage=disks(tmp_path),
    )
    block_io.plans(look(), SECTION, halve_weight=False, ttl_ms=2_000)
    assert block_io.apply_root(SECTION) == []
    assert written == [
        ("blkio.cost.model", "253:0 ctrl=auto"),
        ("blkio.cost.qos", "253:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"),
        ("blkio.cost.qos", "253:16 enable=0"),
    ]


def test_two_devices_of_one_file_are_two_knobs(tmp_path: Path) -> None:
    file = "blkio.throttle.read_bps_device"
    kernel = RuledKernel({CgroupFile(BE, file, device): "" for device in ("", "253:0")})
    block_io = BlockIo(read=kernel.read, write_root=lambda _file, _line: None, storage=disks(tmp_path))
    (plan,) = block_io.plans(look(), SECTION, halve_weight=False, ttl_ms=2_000)
    (outcome,) = CgroupExecutor(kernel, trees=("kubepods",)).apply([plan], 0)  # pyright: ignore[reportArgumentType]
    assert (outcome.result, outcome.file.device) == (Result.WRITTEN, "253:0")


def test_a_disk_that_hangs_holds_up_nothing_and_is_asked_once_at_a_time(tmp_path: Path) -> None:
    started: list[Callable[[], None]] = []
    storage = Storage(tmp_path, run=run, start=started.append)
    assert storage.known(0) is None
    assert storage.known(10 * REFRESH_MS) is None
    assert len(started) == 1, "the first look-up has not ended"
    started[0]()
    found = storage.known(10 * REFRESH_MS + 1)
    assert found is not None
    assert found.disk_number
    assert len(started) == 2, "what was known is given while it is looked up again"
