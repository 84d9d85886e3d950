"""Block-IO QoS on a real machine: which disks there are, and the plans for the best-effort class and for pods.

The disks come from `shell.storage`, what to write from `domain.qos.blkio`. The root's latency
goals and cost model are outside of pods' cgroups and are written here. cgroup v1 with the kernel's extensions only.
Source: agent spec, 6.11, 16.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.blkio import (
    AUDIT_REASON,
    DEFAULT_WEIGHT,
    LIMIT_FILES,
    PLUGIN,
    ROOT_FILES,
    WEIGHT,
    Block,
    BlockType,
    DeviceValue,
    blocks_of,
    blocks_of_pod,
    io_plan,
)
from koord_agent.domain.kernel.cgroup_files import is_equal
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod
from koord_agent.shell.collect.storage import Storage


class BlockIo:
    """Block-IO plans of one machine, with what is known of its disks.

    read         text of a knob; None = this kernel does not have it
    write_root   writes a line to a file of the hierarchy's root; raises OSError
    storage      the disks; while they are not known nothing is planned
    """

    def __init__(
        self,
        *,
        read: Callable[[CgroupFile], str | None],
        write_root: Callable[[str, str], None],
        storage: Storage,
    ) -> None:
        self._read = read
        self._write_root = write_root
        self._storage = storage
        self._disks = StorageInfo()

    def plans(self, look: NodeLook, section: Mapping[str, Any], *, halve_weight: bool, ttl_ms: int) -> list[Plan]:
        """Plans for the best-effort class and for pods with block-IO settings of their own.

        section        `resourceQOSStrategy` in wire spelling
        halve_weight   disk contention: best effort's weight is halved, at least 1
        raises         InvalidInput for malformed settings of the class
        """
        be_root = look.layout.qos_directory(KubeQos.BEST_EFFORT)
        if all(self._read(CgroupFile(be_root, name)) is None for name in LIMIT_FILES):
            return []
        disks = self._storage.known(look.now_ms)
        if disks is None:
            return []
        self._disks = disks
        settings = _settings(section, "beClass")
        lines = self._lines(be_root, blocks_of(settings), enable=bool(settings.get("enable")), uid="")
        if halve_weight:
            lines = [_halved(line) if line.file == WEIGHT else line for line in lines]
        plans = [_plan(look, be_root, line, ttl_ms) for line in lines]
        for pod in look.pods:
            if pod.uid not in look.frozen and pod.phase == "Running" and keys.BLKIO_QOS in pod.annotations:
                plans.extend(self._of_pod(look, pod, ttl_ms))
        return plans

    def apply_root(self, section: Mapping[str, Any]) -> list[str]:
        """Latency goals and cost model of the whole node; what could not be done, one line each."""
        settings = _settings(section, "cgroupRoot")
        current = {name: text for name in ROOT_FILES if (text := self._read(CgroupFile("", name))) is not None}
        if not current:
            return []
        lines = io_plan(
            blocks_of(settings),
            is_root=True,
            enable=bool(settings.get("enable")),
            disk_of=lambda block: self._disk_of(block, ""),
            current=current,
        )
        problems: list[str] = []
        for line in lines or ():
            if line.file in current and not is_equal(line.file, current[line.file], line.value, 1):
                try:
                    self._write_root(line.file, line.value)
                except OSError as error:
                    problems.append(f"{line.file}: {line.value!r} not written: {error.strerror}")
        return problems

    def _of_pod(self, look: NodeLook, pod: AgentPod, ttl_ms: int) -> Iterable[Plan]:
        try:
            blocks = blocks_of_pod(pod.annotations)
        except InvalidInput:
            return []
        directory = look.pod_directory(pod)
        return [
            _plan(look, directory, line, ttl_ms) for line in self._lines(directory, blocks, enable=True, uid=pod.uid)
        ]

    def _lines(self, directory: str, blocks: Sequence[Block], *, enable: bool, uid: str) -> list[DeviceValue]:
        current = {name: text for name in LIMIT_FILES if (text := self._read(CgroupFile(directory, name))) is not None}
        lines = io_plan(
            blocks, is_root=False, enable=enable, disk_of=lambda block: self._disk_of(block, uid), current=current
        )
        return [line for line in lines or () if line.file in current]

    def _disk_of(self, block: Block, uid: str) -> str | None:
        match block.type:
            case BlockType.VOLUME_GROUP:
                return self._disks.disk_of_group(block.name)
            case BlockType.POD_VOLUME:
                return self._disks.disk_of_volume(uid, block.name) if uid else None
            case _:
                return self._disks.disk_of_device(block.name)


def _settings(section: Mapping[str, Any], class_name: str) -> Mapping[str, Any]:
    of_class: Mapping[str, Any] = section.get(class_name) or {}
    fields: Mapping[str, Any] = of_class.get("blkioQOS") or {}
    return fields


def _halved(line: DeviceValue) -> DeviceValue:
    weight = int(line.value.split(" ")[-1]) if line.value.split(" ")[-1].isdecimal() else DEFAULT_WEIGHT
    return DeviceValue(file=line.file, device=line.device, value=f"{line.device} {max(weight // 2, 1)}")


def _plan(look: NodeLook, directory: str, line: DeviceValue, ttl_ms: int) -> Plan:
    return Plan(
        plugin=PLUGIN,
        band=Band.ISOLATION,
        file=CgroupFile(directory, line.file, line.device),
        value=line.value,
        created_ms=look.now_ms,
        ttl_ms=ttl_ms,
        reason=AUDIT_REASON,
    )
