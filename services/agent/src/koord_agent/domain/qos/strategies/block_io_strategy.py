"""Block-IO limits of the best-effort class and of pods as plans.

The values are computed by `domain.hooks.blkio`. cgroup v1 with the kernel's extensions only. Source: agent spec, 16.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import BLKIO_RECONCILE
from koord_agent.domain.hooks import blkio
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.qos.strategy import RESOURCE_QOS, CycleState, Needs, Proposal, Readings
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod


class BlockIoStrategy:
    """Proposes block-IO limits of the best-effort class, and of running pods with an annotation of their own.

    It proposes no plan on cgroup v2, without the kernel's files, or while the disks are unknown.
    """

    name = blkio.PLUGIN
    needs = Needs(gates=(BLKIO_RECONCILE,), section=RESOURCE_QOS)

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose block-IO limits and weights for this cycle.

        Contention for disks halves the weight of the best-effort class. See `Strategy.propose`.
        """
        be_root, readings = look.layout.qos_directory(KubeQos.BEST_EFFORT), state.readings
        if look.cgroup_version != 1 or not _current(readings, be_root):
            return Proposal()
        disks = readings.disks(look.now_ms)
        if disks is None:
            return Proposal()
        settings = blkio.settings_of(policy, "beClass")
        lines = _lines(readings, disks, be_root, blkio.blocks_of(settings), enable=bool(settings.get("enable")))
        if state.effects.halve_io_weight:
            lines = [blkio.halved(line) if line.file == blkio.WEIGHT else line for line in lines]
        plans = [_plan(look, be_root, line, state.ttl_ms) for line in lines]
        for pod in look.pods:
            if pod.uid not in look.frozen and pod.phase == "Running" and keys.BLKIO_QOS in pod.annotations:
                plans.extend(_plans_of_pod(look, pod, disks, state))
        return Proposal(plans)


def _plans_of_pod(look: NodeLook, pod: AgentPod, disks: StorageInfo, state: CycleState) -> Iterable[Plan]:
    try:
        blocks = blkio.blocks_of_pod(pod.annotations)
    except InvalidInput:
        return []
    directory = look.pod_directory(pod)
    lines = _lines(state.readings, disks, directory, blocks, enable=True, uid=pod.uid)
    return [_plan(look, directory, line, state.ttl_ms) for line in lines]


def _lines(
    readings: Readings,
    disks: StorageInfo,
    directory: str,
    blocks: Sequence[blkio.Block],
    *,
    enable: bool,
    uid: str = "",
) -> list[blkio.DeviceValue]:
    current = _current(readings, directory)
    lines = blkio.io_plan(
        blocks, is_root=False, enable=enable, disk_of=lambda block: blkio.disk_of(disks, block, uid), current=current
    )
    return [line for line in lines or () if line.file in current]


def _current(readings: Readings, directory: str) -> dict[str, str]:
    texts = {name: readings.read(CgroupFile(directory, name)) for name in blkio.LIMIT_FILES}
    return {name: text for name, text in texts.items() if text is not None}


def _plan(look: NodeLook, directory: str, line: blkio.DeviceValue, ttl_ms: int) -> Plan:
    return Plan(
        plugin=blkio.PLUGIN,
        band=Band.ISOLATION,
        file=CgroupFile(directory, line.file, line.device),
        value=line.value,
        created_ms=look.now_ms,
        ttl_ms=ttl_ms,
        reason=blkio.AUDIT_REASON,
    )
