"""Settings of a whole real machine, beside the files of pods: kernel parameters, resctrl groups, block-IO goals.

These files belong to the whole machine, so they do not pass through the arbiter. Each cycle reads, compares and writes.
A file that this kernel does not have is skipped. The values come from `domain.strategies.system_config`,
`domain.strategies.block_io` and `domain.hooks.resctrl`.

Source: agent spec, 15 to 17.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from koordcore.protocol.config.node_strategies import ResctrlQos
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.pod_resources import MEMORY
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.failure import failure
from koord_agent.domain.gate_names import BLKIO_RECONCILE, RDT_RESCTRL, SYSTEM_CONFIG
from koord_agent.domain.hooks import resctrl
from koord_agent.domain.kernel.cgroup_files import file_path, is_equal
from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.domain.kernel.resctrl_files import GROUPS, Schemata, parse_schemata, resctrl_support
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.node.policies import section
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.domain.strategies import system_config
from koord_agent.domain.strategies.block_io import ROOT_FILES, blocks_of, disk_of, io_plan
from koord_agent.domain.strategies.cpu_qos import AUDIT_REASON, PLUGIN
from koord_agent.domain.strategies.group_identity import BvtKernel
from koord_agent.domain.strategies.runner import Interval
from koord_agent.domain.strategies.strategy import RESOURCE_QOS
from koord_agent.domain.strategies.system_config import PATHS, SCHED_FEATURES
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.storage import Storage
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.kernel_files import put, read_kernel_file
from koord_agent.shell.host.probe import HostRoots, bandwidth_vendor
from koord_agent.shell.host.resctrl_mount import is_mounted, mount_resctrl
from koord_agent.shell.store.audit_log import AuditSink

MEGABYTES_PROBLEM: Final = (
    "resctrl: mbaPercent is not applied, because resctrl is mounted with mba_MBps and percent has no meaning then"
)
GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


class RootBlockIo:
    def __init__(
        self,
        *,
        read: Callable[[CgroupFile], str | None],
        write: Callable[[str, str], None],
        disks: Callable[[int], StorageInfo | None],
        version: int = 1,
    ) -> None:
        """`read` and `disks` return None for what is unknown or missing in this kernel. `write` may raise OSError.

        `version` is that of the cgroup interface.
        """
        self._version = version
        self._read = read
        self._write = write
        self._disks = disks

    def apply(self, strategy: Mapping[str, Any], now_ms: int) -> list[str]:
        """Write the lines that differ from a `resourceQOSStrategy` (JSON). Return errors, one sentence each."""
        settings = section(strategy, "cgroupRoot", "blkioQOS")
        current = {name: text for name in ROOT_FILES if (text := self._read(CgroupFile("", name))) is not None}
        try:
            blocks = blocks_of(settings)
        except InvalidInput as error:
            return [f"NodeSLO: {error}"]
        if not current:
            is_wanted = bool(settings.get("enable")) and bool(blocks)
            return ["blkioQOS of cgroupRoot is not in force: this kernel has no io.cost"] if is_wanted else []
        disks = self._disks(now_ms) or StorageInfo()
        lines = io_plan(
            blocks,
            is_root=True,
            enable=bool(settings.get("enable")),
            disk_of=lambda block: disk_of(disks, block, ""),
            current=current,
        )
        problems: list[str] = []
        for line in lines or ():
            if line.file in current and not is_equal(line.file, current[line.file], line.value, self._version):
                try:
                    self._write(line.file, line.value)
                except OSError as error:
                    problems.append(f"{line.file}: {line.value!r} not written: {error.strerror}")
        return problems


class NodeSettings:
    """Writes the kernel parameters and resctrl groups of one real machine.

    `read_tasks` returns None for an unreadable file. `mount` is called at most once, and returns whether it could
    mount.
    """

    def __init__(
        self,
        roots: HostRoots,
        *,
        audit: AuditSink,
        read_tasks: Callable[[CgroupFile], str | None],
        mount: Callable[[Path], bool] | None = None,
    ) -> None:
        self._roots = roots
        self._audit = audit
        self._read_tasks = read_tasks
        self._mount = mount or mount_resctrl
        self._resctrl = roots.resctrl
        self._support = resctrl_support(read_kernel_file(str(roots.proc / "cpuinfo")) or "")
        self._mount_tried = False

    def apply_system(self, look: NodeLook, strategy: Mapping[str, Any]) -> list[str]:
        """Write the kernel parameters that differ from a `systemStrategy` (JSON). Return errors, one sentence each."""
        features = self._path(SCHED_FEATURES)
        wanted = system_config.system_writes(
            strategy,
            memory_capacity_bytes=look.capacity.get(MEMORY, 0),
            sched_features=read_kernel_file(str(features)),
        )
        problems: list[str] = []
        for name, value in wanted.values.items():
            path = self._path(name)
            current = read_kernel_file(str(path))
            if current is not None and current.strip() != value:
                problems.extend(
                    self._set(path, value, current.strip(), system_config.PLUGIN, system_config.AUDIT_REASON)
                )
        for feature in wanted.sched_features:
            problems.extend(self._set(features, feature, "", system_config.PLUGIN, system_config.AUDIT_REASON))
        return problems

    def group_identity(self, *, has_file: bool) -> BvtKernel:
        text = read_kernel_file(str(self._path(system_config.SCHED_GROUP_IDENTITY)))
        is_there = self._path(system_config.SCHED_GROUP_IDENTITY).exists()
        return BvtKernel(has_file=has_file, has_switch=is_there, is_on=None if text is None else text.strip() == "1")

    def switch_group_identity(self) -> bool:
        """Switch group identity on and core scheduling off; the kernel allows only one of them. False if it refuses.

        No-op if the kernel has no such switch; group identity is then always on.
        """
        switch, core_sched = self._path(system_config.SCHED_GROUP_IDENTITY), self._roots.proc / "sys/kernel/sched_core"
        for path, value in ((core_sched, "0"), (switch, "1")):
            current = read_kernel_file(str(path))
            if current is None or current.strip() == value:
                continue
            if self._set(path, value, current.strip(), PLUGIN, AUDIT_REASON) and path == switch:
                return False
        return True

    def apply_resctrl(self, look: NodeLook, strategy: Mapping[str, Any]) -> list[str]:
        """Write the schemata and threads of the QoS classes' resctrl groups, as a `resourceQOSStrategy` (JSON) asks.

        Missing groups are created. No-op if the CPU cannot divide caches, or if resctrl is not mounted and cannot be
        mounted. Return errors, one sentence each.
        """
        if not self._support.control or not self._is_mounted():
            return []
        cbm_mask = read_kernel_file(str(self._resctrl / "info/L3/cbm_mask"))
        try:
            root = parse_schemata(read_kernel_file(str(self._resctrl / "schemata")) or "")
        except MalformedCounter as error:
            return [f"resctrl: {error}"]
        ids = sorted(root.l3)
        if cbm_mask is None or not ids:
            return []
        problems: list[str] = []
        vendor = bandwidth_vendor(self._roots)
        if vendor != self._support.vendor and resctrl.limits_bandwidth(strategy):
            problems.append(MEGABYTES_PROBLEM)
        for group in GROUPS:
            problems.extend(self._apply_group(group, strategy, cbm_mask, ids, vendor))
        return [*problems, *self._apply_tasks(look, strategy)]

    def _apply_group(
        self, group: str, strategy: Mapping[str, Any], cbm_mask: str, ids: list[int], vendor: str
    ) -> Iterable[str]:
        directory = self._resctrl / group
        if not directory.is_dir():
            try:
                directory.mkdir()
            except OSError as error:
                return [f"resctrl group {group}: not created: {error.strerror}"]
            self._audit(AuditEvent(type="group", name=group, reason="CreateCATGroup", message=f"create {directory}"), 1)
        fields = section(strategy, resctrl.CLASS_OF_GROUP[group], "resctrlQOS")
        wanted = resctrl.schemata_of_class(convert(fields, ResctrlQos), cbm_mask=cbm_mask, cache_ids=ids, vendor=vendor)
        schemata = directory / "schemata"
        text = read_kernel_file(str(schemata)) or ""
        try:
            current = parse_schemata(text, len(ids))
        except MalformedCounter:
            current = Schemata()
        problems: list[str] = []
        for line in resctrl.lines(resctrl.changed(current, wanted)):
            problems.extend(self._set(schemata, line, text.strip(), resctrl.PLUGIN, "UpdateResctrl"))
        return problems

    def _apply_tasks(self, look: NodeLook, strategy: Mapping[str, Any]) -> Iterable[str]:
        """Move threads of pods into the group of their class, one write each. Ended threads are ignored."""
        enabled = resctrl.enabled_classes(strategy)
        wanted: dict[str, set[int]] = {}
        for pod in look.pods:
            group = resctrl.group_of_pod(pod, enabled)
            if group is not None and pod.uid not in look.frozen:
                wanted.setdefault(group, set()).update(self._threads(look, pod))
        problems: dict[str, None] = {}  # once for a group: threads come and go
        for group, threads in wanted.items():
            tasks = self._resctrl / group / "tasks"
            missing = resctrl.missing_tasks(threads, read_kernel_file(str(tasks)) or "")
            for thread in missing:
                try:
                    put(tasks, str(thread))
                except OSError as error:
                    if error.errno not in GONE:
                        problems[f"resctrl group {group}: threads not moved: {error.strerror}"] = None
            if missing:
                message = f"{len(missing)} threads into {group}"
                self._audit(AuditEvent(type="group", name=group, reason="ApplyCatL3GroupTasks", message=message), 2)
        return list(problems)

    def _threads(self, look: NodeLook, pod: AgentPod) -> set[int]:
        directories = [look.pod_directory(pod), *(directory for _, directory in look.created_containers(pod))]
        texts = (self._read_tasks(CgroupFile(directory, "tasks")) or "" for directory in directories)
        return {int(line) for text in texts for line in text.split() if line.isdecimal()}

    def _is_mounted(self) -> bool:
        if is_mounted(self._resctrl):
            return True
        if not self._mount_tried:
            self._mount_tried = True
            return self._mount(self._resctrl) and is_mounted(self._resctrl)
        return False

    def _path(self, name: str) -> Path:
        tree, _, rest = PATHS[name].partition("/")
        return (self._roots.proc if tree == "proc" else self._roots.sys) / rest

    def _set(self, path: Path, value: str, before: str, strategy: str, reason: str) -> Iterable[str]:
        try:
            put(path, value)
        except OSError as error:
            return [f"{path}: {value.strip()!r} not written: {error.strerror}"]
        event = AuditEvent(
            type="node",
            name=path.name,
            reason=reason,
            message=f"update {path} to {value.strip()}",
            old_value=before,
            new_value=value.strip(),
            strategy=strategy,
        )
        self._audit(event, 1)
        return []


class MachineSettings:
    """Writes the settings of the NodeSLO that belong to a whole real machine. The `QosCycle` passes it the NodeSLO."""

    def __init__(
        self,
        host: Host,
        roots: HostRoots,
        settings: AgentSettings,
        audit: AuditSink,
        interval: Interval,
    ) -> None:
        # Finds the disks of the machine. None if block IO is not limited: without the feature gate `BlkIOReconcile`.
        self.storage: Storage | None = None
        self._gates = settings.feature_gates
        self._interval = interval
        self.kernel = NodeSettings(roots, audit=audit, read_tasks=host.read)
        self._block_io: RootBlockIo | None = None
        self._problems: list[str] = []
        version = host.cgroup_version
        if self._gates.enabled(BLKIO_RECONCILE):
            self.storage = Storage(
                roots.sys / "class" / "block",
                roots.proc / "1" / "mountinfo",
                roots.kubelet,
                refresh_ms=round(settings.collect_node_storage_info_interval * 1_000),
            )
            self._block_io = RootBlockIo(
                read=host.read,
                write=lambda file, line: put(Path(file_path(str(roots.cgroup), file, "", version)), line),
                disks=self.disks,
                version=version,
            )

    def disks(self, now_ms: int) -> StorageInfo | None:
        """None while they are unknown or block IO is not set."""
        return None if self.storage is None else self.storage.known(now_ms)

    def apply(self, look: NodeLook) -> list[str]:
        """Write the machine-wide settings of the NodeSLO to the machine, once per interval.

        Return the errors that last.

        Settings whose feature gate is off are left alone. Nothing happens while the node has no NodeSLO. A kind of
        settings that fails leaves the others alone.
        """
        if look.slo is None:
            self._problems = []
            return []
        if not self._interval.is_due(look.now_ms):
            return self._problems
        problems: list[str] = []
        for name, write in self._kinds(look):
            try:
                problems.extend(write())
            except Exception as error:  # noqa: BLE001 - what follows in the cycle, such as evictions, takes place
                problems.append(failure(f"{name} failed", error))
        self._problems = problems
        return problems

    def _kinds(self, look: NodeLook) -> Iterator[tuple[str, Callable[[], list[str]]]]:
        """Only kinds of settings that are on."""
        qos, block_io = look.section(RESOURCE_QOS), self._block_io
        if self._gates.enabled(SYSTEM_CONFIG):
            yield "kernel parameters", lambda: self.kernel.apply_system(look, look.section("systemStrategy"))
        if self._gates.enabled(RDT_RESCTRL):
            yield "resctrl", lambda: self.kernel.apply_resctrl(look, qos)
        if block_io is not None:
            yield "block IO of the machine", lambda: block_io.apply(qos, look.now_ms)
