"""Parts of a node's agent: for measuring, for running pods, and for protecting the node.

The composition root (`koord_agent.wiring.node_agents`) builds these parts. `node_agent` uses them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from koordcore.service.flags import FeatureGates

from koord_agent.config.gates import DEFAULT_GATES
from koord_agent.domain.metrics.gpu_usage import ReadGpus
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.qos.intervals import DEFAULT_OPTIONS, QosOptions
from koord_agent.shell.collect.collectors import NOTHING_SLOW, CollectOptions
from koord_agent.shell.collect.devices import DeviceReporter
from koord_agent.shell.collect.storage import REFRESH_MS
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.hooking.machine_hooks import ObserveReconciler
from koord_agent.shell.host.executor import ObserveWrite
from koord_agent.shell.node.node_pods import PodRunner, StopContainers
from koord_agent.shell.node.predicting import Predicting
from koord_agent.shell.store.audit_log import AuditSink, no_audit
from koord_agent.shell.store.series_archive import SeriesArchive


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Settings and parts for measuring a node.

    Attributes:
        monitor: Monitor with its time series. Their retention determines the memory usage.
        collectors: Options of the slow collectors.
        predicting: Prediction; None means no prediction.
        archive: Archive that keeps the time series over a restart. None means that they are lost.
        topology: Reports the CPUs of each kind of pods. None means they are not reported.
        devices: Reports the devices of the node. None means they are not reported.
        gpus: Returns the GPUs with their processes. None means that their usage is not measured.
    """

    monitor: NodeMonitor
    collectors: CollectOptions = NOTHING_SLOW
    predicting: Predicting | None = None
    archive: SeriesArchive | None = None
    topology: TopologyReporter | None = None
    devices: DeviceReporter | None = None
    gpus: ReadGpus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodControl:
    """Functions that start and end pods on a node.

    Attributes:
        runner: Starts and ends pods. None means that a kubelet does, and a pod counts as started once its cgroup
            exists.
        announced: UIDs of pods whose start is already in the log, after a restart of the agent.
        stop: Ends containers of evicted pods that a kubelet started. None means the eviction stays a request.
    """

    runner: PodRunner | None = None
    announced: Iterable[str] = ()
    stop: StopContainers | None = None


BY_KUBELET: Final = PodControl()


def _no_observer(_resource: str, _written: bool, _seconds: float) -> None:
    return


def _no_reconciler_observer(_level: str, _resource: str, *, is_ok: bool, seconds: float) -> None:
    return


def _middle() -> float:
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Settings and parts for protecting a node.

    Attributes:
        gates: Feature gates that enable strategies.
        intervals: Intervals of the strategies.
        audit: Receives every write.
        draw: Returns random numbers in 0..1.
        storage_refresh_ms: Milliseconds after which the disks are looked up again.
        observe_write: Receives every write with its duration.
        observe_reconciler: Receives every run of a reconciler of runtime hooks.
        unsets_quota: Whether pods that own CPUs lose their CPU quota.
        terway: Folder of the files of Terway, a network plugin.
        moves_threads: Whether threads of pods are moved to the resctrl groups of their pods.
        is_on: Whether to measure and write. If False, the agent only reports which pods run.
    """

    gates: FeatureGates = field(default_factory=lambda: DEFAULT_GATES)
    intervals: QosOptions = DEFAULT_OPTIONS
    audit: AuditSink = no_audit
    draw: Callable[[], float] = _middle
    storage_refresh_ms: int = REFRESH_MS
    observe_write: ObserveWrite = _no_observer
    observe_reconciler: ObserveReconciler = _no_reconciler_observer
    unsets_quota: bool = True
    terway: Path = Path("/var/lib/terway/qos")
    moves_threads: bool = False
    is_on: bool = True


DEFAULT_PROTECTION: Final = Protection()
