"""Block-IO limits and weights by device: plans for the best-effort class and pods, goals for the whole machine.

`io_plan` turns configured blocks into lines by file and device, and resets devices that are not configured any more.
Names and lines are those of cgroup v1 with the kernel's extensions; on v2 they become io.max, io.weight and io.cost.

Source: agent spec, 16; reality, 4.15. Vectors: blkio.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.config.node_strategies import Block, IoConfig
from koordcore.protocol.lenient_json import convert, decode
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import BLKIO_RECONCILE
from koord_agent.domain.kernel.io_files import has_settings
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.policies import section
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.strategy import RESOURCE_QOS, CycleState, Needs, Proposal, Readings, isolating

PLUGIN = "BlkioReconcile"
AUDIT_REASON = "UpdateBlkIO"
WEIGHT = "blkio.cost.weight"
COST_QOS, COST_MODEL = "blkio.cost.qos", "blkio.cost.model"
DEFAULT_WEIGHT = 100
DEFAULT_LATENCY_PERCENT, DEFAULT_LATENCY_US = 95, 3000
ROOT_FILES = (COST_QOS, COST_MODEL)


class _Written(msgspec.Struct, frozen=True):
    """Object of the annotation blkioQOS, or `blkioQOS` of the NodeSLO."""

    blocks: list[Block] = []


def blocks_of(fields: Mapping[str, Any]) -> tuple[Block, ...]:
    """From a `blkioQOS` object (JSON).

    Raises:
        InvalidInput: A field has a wrong type.
    """
    return tuple(convert(fields, _Written).blocks)


def blocks_of_pod(annotations: Mapping[str, str]) -> tuple[Block, ...]:
    """From the annotation `blkioQOS`; empty without it.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    text = annotations.get(keys.BLKIO_QOS)
    return tuple(decode(text, _Written).blocks) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceValue:
    """A line for one device, to be written to a kernel file that has one line per device."""

    file: str
    device: str  # Device as MAJ:MIN
    value: str  # The whole line


THROTTLES: tuple[tuple[str, Callable[[IoConfig], int | None]], ...] = (
    ("blkio.throttle.read_iops_device", lambda io: io.read_iops),
    ("blkio.throttle.read_bps_device", lambda io: io.read_bps),
    ("blkio.throttle.write_iops_device", lambda io: io.write_iops),
    ("blkio.throttle.write_bps_device", lambda io: io.write_bps),
)
LIMIT_FILES = (*(file for file, _ in THROTTLES), WEIGHT)


def io_plan(
    blocks: Sequence[Block],
    *,
    is_root: bool,
    enable: bool,
    disk_of: Callable[[Block], str | None],
    current: Mapping[str, str],
) -> tuple[DeviceValue, ...] | None:
    """Return the lines to write so that the files of one cgroup have the configured limits.

    A device that the files list and no block configures is reset: no limit and weight 100, or no latency goals.

    Args:
        is_root: Whether the cgroup is the root of the node (latency goals and cost model), and not a class or pod
            (limits and weight).
        enable: If False, every device in the files is reset.
        disk_of: Returns MAJ:MIN of a block; None if the disk is unknown.
        current: File -> its text. A file that the kernel does not have is absent.

    Returns:
        Lines sorted by file, then device, also for files that are absent from `current`. None if the disk of a block is
        unknown; then nothing must be changed.
    """
    devices: dict[str, IoConfig] = {}
    if enable:
        for block in blocks:
            device = disk_of(block)
            if device is None:
                return None
            devices[device] = block.io_cfg
    listed = sorted({device for text in current.values() for device in _devices(text)} - devices.keys())
    lines = _root_lines if is_root else _limit_lines
    wanted = [line for device, io in devices.items() for line in lines(device, io)]
    for device in listed:
        wanted.extend(_reset(device, is_root=is_root))
    return tuple(sorted(wanted, key=lambda line: (line.file, line.value)))


def _devices(text: str) -> Iterable[str]:
    for line in text.splitlines():
        device = line.split(" ", 1)[0].strip()
        major, colon, minor = device.partition(":")
        if colon and major.isdecimal() and minor.isdecimal():
            yield device


def _limit_lines(device: str, io: IoConfig) -> list[DeviceValue]:
    lines = [_line(file, device, str(read(io) or 0)) for file, read in THROTTLES]
    weight = DEFAULT_WEIGHT if io.io_weight_percent is None else io.io_weight_percent
    return [*lines, _line(WEIGHT, device, str(weight))]


def _root_lines(device: str, io: IoConfig) -> list[DeviceValue]:
    def or_default(value: int | None, default: int) -> int:
        return default if value is None else value

    goals = (
        f"enable=1 ctrl=user rpct={or_default(io.read_latency_percent, DEFAULT_LATENCY_PERCENT)}"
        f" rlat={or_default(io.read_latency, DEFAULT_LATENCY_US)}"
        f" wpct={or_default(io.write_latency_percent, DEFAULT_LATENCY_PERCENT)}"
        f" wlat={or_default(io.write_latency, DEFAULT_LATENCY_US)}"
    )
    lines = [_line(COST_QOS, device, goals)]
    if not io.enable_user_model:
        return [*lines, _line(COST_MODEL, device, "ctrl=auto")]
    model = (
        ("rbps", io.model_read_bps),
        ("rseqiops", io.model_read_seq_iops),
        ("rrandiops", io.model_read_rand_iops),
        ("wbps", io.model_write_bps),
        ("wseqiops", io.model_write_seq_iops),
        ("wrandiops", io.model_write_rand_iops),
    )
    if any(value is None or value < 1 for _, value in model):
        return lines  # a model needs every coefficient, each at least 1
    return [*lines, _line(COST_MODEL, device, "ctrl=user " + " ".join(f"{name}={value}" for name, value in model))]


def _reset(device: str, *, is_root: bool) -> list[DeviceValue]:
    if is_root:
        return [_line(COST_QOS, device, "enable=0")]
    return [*(_line(file, device, "0") for file, _ in THROTTLES), _line(WEIGHT, device, str(DEFAULT_WEIGHT))]


def _line(file: str, device: str, value: str) -> DeviceValue:
    return DeviceValue(file=file, device=device, value=f"{device} {value}")


def halved(line: DeviceValue) -> DeviceValue:
    """The weight of a device, at least 1."""
    text = line.value.split(" ")[-1]
    weight = int(text) if text.isdecimal() else DEFAULT_WEIGHT
    return DeviceValue(file=line.file, device=line.device, value=f"{line.device} {max(weight // 2, 1)}")


def disk_of(disks: StorageInfo, block: Block, uid: str) -> str | None:
    """MAJ:MIN of the disk; None if it is unknown.

    `uid` is that of the pod whose volume the block may be, "" for others.
    """
    name = block.name or ""
    match block.type:
        case "volumegroup":
            return disks.disk_of_group(name)
        case "podvolume":
            return disks.disk_of_volume(uid, name) if uid else None
        case _:
            return disks.disk_of_device(name)


class BlockIoStrategy:
    """Proposes block-IO limits of the best-effort class, and of running pods with an annotation of their own.

    It proposes no plan without the kernel's files, or while the disks are unknown.
    """

    name = PLUGIN
    needs = Needs(gates=(BLKIO_RECONCILE,), section=RESOURCE_QOS)

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Contention for disks halves the weight of the best-effort class."""
        be_root = look.layout.qos_directory(KubeQos.BEST_EFFORT)
        settings = section(policy, "beClass", "blkioQOS")
        wanted = [_Target(be_root, blocks_of(settings) if settings.get("enable") else (), "", "best effort")]
        problems: list[str] = []
        for pod in look.pods:
            if pod.uid not in look.frozen and pod.phase == "Running" and keys.BLKIO_QOS in pod.annotations:
                name = f"pod {pod.namespace}/{pod.name}"
                try:
                    wanted.append(_Target(look.pod_directory(pod), blocks_of_pod(pod.annotations), pod.uid, name))
                except InvalidInput as error:
                    problems.append(f"block IO of {name} is not limited: {error}")
        plans: list[Plan] = []
        for target in wanted:
            lines = _lines(look, state.readings, target, problems)
            if state.effects.halve_io_weight and target.directory == be_root:
                lines = [halved(line) if line.file == WEIGHT else line for line in lines]
            plans.extend(_plans(look, state, target.directory, lines))
        return Proposal(plans, problems=tuple(problems))


class _Target(NamedTuple):
    directory: str
    blocks: Sequence[Block]  # Wanted limits; empty if there are none any more
    uid: str  # UID of the pod, "" for a class
    name: str


def _lines(look: NodeLook, readings: Readings, target: _Target, problems: list[str]) -> list[DeviceValue]:
    """Why limits are not in force is added to `problems`."""
    current = _current(readings, target.directory)
    if not current:
        if target.blocks and readings.read(CgroupFile(target.directory, "cgroup.procs")) is not None:
            why = "this kernel has no block-IO limits" if look.cgroup_version == 1 else "the io controller is off there"
            problems.append(f"block IO of {target.name} is not limited: {target.directory}: {why}")
        return []
    disks = readings.disks(look.now_ms)
    if disks is None:
        return []
    unknown = [block.name or "" for block in target.blocks if disk_of(disks, block, target.uid) is None]
    if unknown:
        problems.append(f"block IO of {target.name} stays as it is: disk of {', '.join(unknown)} is unknown")
    if WEIGHT not in current and any(block.io_cfg.io_weight_percent not in (None, 100) for block in target.blocks):
        problems.append(f"ioWeightPercent of {target.name} is not in force: this kernel has no io.cost")
    lines = io_plan(
        target.blocks,
        is_root=False,
        enable=bool(target.blocks),
        disk_of=lambda block: disk_of(disks, block, target.uid),
        current=current,
    )
    return [line for line in _enforced(look, readings, target, lines or (), problems) if line.file in current]


def _enforced(
    look: NodeLook, readings: Readings, target: _Target, lines: Iterable[DeviceValue], problems: list[str]
) -> Iterator[DeviceValue]:
    """Leave out weights of devices whose io.cost is off. The kernel refuses them (EOPNOTSUPP) on cgroup v2."""
    costs = readings.read(CgroupFile("", COST_QOS)) if look.cgroup_version != 1 else None
    for line in lines:
        if line.file != WEIGHT or costs is None or has_settings(costs, f"{line.device} enable=1"):
            yield line
        elif not line.value.endswith(f" {DEFAULT_WEIGHT}"):
            problems.append(
                f"ioWeightPercent of {target.name} is not in force: io.cost of {line.device} is off, and blkioQOS of"
                " cgroupRoot switches it on"
            )


def _current(readings: Readings, directory: str) -> dict[str, str]:
    """File -> its text, of the files that there are."""
    texts = {name: readings.read(CgroupFile(directory, name)) for name in LIMIT_FILES}
    return {name: text for name, text in texts.items() if text is not None}


def _plans(look: NodeLook, state: CycleState, directory: str, lines: Iterable[DeviceValue]) -> list[Plan]:
    values = ((CgroupFile(directory, line.file, line.device), line.value) for line in lines)
    return isolating(look, state, values, plugin=PLUGIN, reason=AUDIT_REASON)
