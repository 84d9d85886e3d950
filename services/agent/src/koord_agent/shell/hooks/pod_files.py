"""Write the values of a pod before its sandbox starts: cgroup files, resctrl group, folder of a GPU monitor.

The hooks have an executor of their own, so they do not wait for a cycle. Both executors get their values from the same
functions.

Source: runtime spec, 2.4, 3.5, 3.8.
"""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from koordcore.service.telemetry.logging import logger

from koord_agent.domain.hooks.call import HookCall, HookValues, Stage
from koord_agent.domain.hooks.plugins import StageResult
from koord_agent.domain.kernel.cfs_bandwidth import QUOTA
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan, writable_trees
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.domain.strategies.group_identity import BVT
from koord_agent.shell.hooks.pod_groups import PodGroups
from koord_agent.shell.host.executor import CgroupExecutor, Outcome, Result
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.store.audit_log import AuditSink

AUDIT_REASON: Final = "RuntimeHook"
_PLUGIN: Final = "RuntimeHooks"
_FILES: Final = {
    "bvt": BVT,
    "cpu_shares": "cpu.shares",
    "cfs_quota_us": QUOTA,
    "memory_limit_bytes": "memory.limit_in_bytes",
}
"""Value of hooks -> file of the directory of a pod."""
_log: Final = logger("agent.hooks")


class LinuxPodFiles:
    """Many threads may use it; one writes at a time. Nobody else uses its `host`. Implements `answering.PodFiles`."""

    def __init__(
        self,
        host: Host,
        roots: HostRoots,
        *,
        audit: AuditSink,
        now_ms: Callable[[], int],
        weight_line: Callable[[], WeightLine] = lambda: WeightLine.QUADRATIC,
    ) -> None:
        """`weight_line` returns the line by which the container runtime converts shares to weights of cgroup v2."""
        self._host = host
        self._weight_line = weight_line
        self._executor = CgroupExecutor(host, trees=writable_trees(host.layout))
        self._groups = PodGroups(roots.resctrl)
        self._audit = audit
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def apply(self, call: HookCall, result: StageResult) -> None:
        values, directory = result.values, call.pod.cgroup_parent.strip("/")
        if call.stage is Stage.PRE_REMOVE_POD_SANDBOX:
            if values.resctrl_group is not None:
                self._groups.remove(values.resctrl_group)
            return
        if values.resctrl_group is not None:
            self._groups.create(values.resctrl_group, values.resctrl_schemata or "")
        now_ms = self._now_ms()
        wanted = {name: getattr(values, name) for name in _FILES}
        plans = [
            Plan(
                plugin=_PLUGIN,
                band=Band.ISOLATION,
                file=CgroupFile(directory, _FILES[name]),
                value=str(value),
                created_ms=now_ms,
                ttl_ms=1_000,
                reason=AUDIT_REASON,
            )
            for name, value in wanted.items()
            if value is not None
        ]
        with self._lock:
            self._host.use_weights(self._weight_line())
            outcomes = self._executor.apply(plans, now_ms) if plans else ()
        for outcome in outcomes:
            self._tell(call, outcome)

    def prepare(self, values: HookValues) -> None:
        folder = Path(values.host_dir)
        if not folder.is_absolute() or folder == folder.parent or ".." in folder.parts:
            if values.host_dir:
                _log.warning(
                    "hook_folder_not_created", folder=values.host_dir, reason="not an absolute path of a folder"
                )
            return
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            folder.chmod(0o777)  # containers of any user write to it
        except OSError as error:
            _log.warning("hook_folder_not_created", folder=values.host_dir, reason=error.strerror)

    def _tell(self, call: HookCall, outcome: Outcome) -> None:
        if outcome.result in (Result.REFUSED, Result.FAILED, Result.HELD_BACK):
            _log.warning("hook_not_written", file=outcome.file.key, value=outcome.value, reason=outcome.detail)
        if outcome.result is not Result.WRITTEN:
            return
        before, after = (outcome.before or "").strip(), (outcome.after or outcome.value).strip()
        event = AuditEvent(
            type="pod",
            namespace=call.pod.namespace,
            name=call.pod.name,
            reason=AUDIT_REASON,
            message=f"update {outcome.file.key} from {before} to {after} at {call.stage}",
            old_value=before,
            new_value=after,
            strategy=_PLUGIN,
        )
        self._audit(event, 1)


class LinuxDeviceFiles:
    """Implements `domain.hooks.allocated_devices.DeviceFiles`."""

    def __init__(self, sys: Path) -> None:
        self._functions = sys / "bus" / "pci" / "devices"

    def character_device(self, path: str) -> tuple[int, int] | None:
        try:
            found = Path(path).stat()
        except (OSError, ValueError):
            return None
        return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None

    def rdma_names(self, pci_address: str) -> Sequence[str]:
        if not pci_address or "/" in pci_address:
            return ()
        try:
            return [path.name for path in (self._functions / pci_address / "infiniband_verbs").iterdir()]
        except (OSError, ValueError):
            return ()
