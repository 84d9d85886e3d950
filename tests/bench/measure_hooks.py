"""The time of the agent's hooks: inside the agent, and for a client of the socket, with 200 pods on the node.

Half of the calls are about pods, whose files are written; the snapshot of the node changes every 20 calls.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
from bench.results import Better, Result
from koord_agent.domain.hooks.call import HookRules, Stage
from koord_agent.domain.hooks.plugins import FailurePolicy, StageResult, enabled_plugins
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import agent_pod_of_ledger
from koord_agent.domain.strategies.group_identity import BvtKernel
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks.answering import HookAnswers
from koord_agent.shell.hooks.hook_server import HookServer, call_of_request
from koord_agent.shell.hooks.pod_files import LinuxPodFiles
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.store.audit_log import no_audit
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.config.node_slo import complete_node_slo
from koordcore.protocol.qos import KubeQos
from koordcore.runtime_api.hooks import SERVICE, messages_of_call
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import EMPTY

PODS = 200
CALLS = 4_000
LOOK_EVERY = 20
LAYOUT = CgroupLayout(Driver.CGROUPFS)
POOLS = CpuPools(
    ls=(SharedPool(0, 0, "4-31"), SharedPool(1, 1, "32-63")),
    be=(SharedPool(0, 0, "0-63"),),
    reserved=EMPTY,
    system_exclusive=EMPTY,
    kubelet=(),
)
_HALF = '{"kubernetes.io/batch-cpu":"500"}'
BATCH = f'{{"containers":{{"main":{{"requests":{_HALF},"limits":{_HALF}}}}}}}'
FILES = (
    ("cpu", "cpu.shares", "2"),
    ("cpu", "cpu.cfs_quota_us", "-1"),
    ("cpu", "cpu.bvt_warp_ns", "0"),
    ("memory", "memory.limit_in_bytes", "9223372036854771712"),
)


def measure() -> Iterator[Result]:
    """Call the hooks directly, then over the socket, one call after the other."""
    with tempfile.TemporaryDirectory() as name:
        node = _Node(Path(name))
        inside = node.seconds(node.answer)
        cpu = node.seconds(node.answer, clock=time.thread_time)  # what a machine without other load would take
        yield _result("hooks: inside the agent, 200 pods, p99", inside, target=1.0)
        yield _result("hooks: CPU time inside the agent, 200 pods, p99", cpu, target=1.0)
        server = HookServer(node.folder / "koordlet.sock", node.answers, runtime="containerd")
        server.start()
        with grpc.insecure_channel(f"unix://{node.folder / 'koordlet.sock'}") as channel:
            unary: Any = channel.unary_unary
            calls = {rpc: unary(f"/{SERVICE}/{rpc}") for rpc in ("PreRunPodSandboxHook", "PreCreateContainerHook")}
            over = node.seconds(lambda rpc, request: calls[rpc](request.SerializeToString()))
        server.stop()
        yield _result("hooks: for a client of the socket, 200 pods, p99", over, target=None)


def _result(name: str, seconds: list[float], *, target: float | None) -> Result:
    found = sorted(seconds)
    note = f"p50 {found[len(found) // 2] * 1000:.3f} ms, longest {found[-1] * 1000:.3f} ms, {len(found)} calls"
    p99 = found[int(len(found) * 0.99)] * 1000
    return Result(name=name, value=p99, unit="ms", target=target, better=Better.LOWER, note=note)


class _Node:
    """A node of 200 pods on a tree of files, and its hooks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        roots = HostRoots(cgroup=folder / "cgroup", sys=folder / "sys")
        host = LinuxHost(monotonic_ns=time.monotonic_ns, roots=roots, layout=LAYOUT, version=1)
        pods = [_entry(number) for number in range(PODS)]
        for pod in pods:
            for tree, file, text in FILES:
                directory = roots.cgroup / tree / LAYOUT.pod_directory(KubeQos(pod.kube_qos), pod.uid)
                directory.mkdir(parents=True, exist_ok=True)
                (directory / file).write_text(text)
        self._requests = cycle([request for pod in pods for request in _requests(pod)])
        self._look = NodeLook(
            now_ms=0,
            node="n",
            layout=LAYOUT,
            cgroup_version=1,
            metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
            pods=tuple(agent_pod_of_ledger(pod) for pod in pods),
            slo=complete_node_slo({"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}}}),
            pools=POOLS,
        )
        self.answers = HookAnswers(
            plugins=enabled_plugins(AgentSettings.model_validate({}).feature_gates.enabled),
            policy=FailurePolicy.FAIL,
            look=lambda: self._look,
            machine=lambda: HookRules(bvt_kernel=BvtKernel(has_file=True)),
            files=LinuxPodFiles(host, roots, audit=no_audit, now_ms=lambda: time.monotonic_ns() // 1_000_000),
            observe=_nobody,
        )

    def answer(self, rpc: str, request: Any) -> StageResult:
        """Answer a call without a socket."""
        return self.answers.answer(call_of_request(rpc, request, runtime="containerd"))

    def seconds(self, ask: Callable[[str, Any], Any], *, clock: Callable[[], float] = time.perf_counter) -> list[float]:
        """Seconds of each call."""
        found: list[float] = []
        for number in range(CALLS):
            if number % LOOK_EVERY == 0:
                self._look = replace(self._look, now_ms=self._look.now_ms + 1_000)
            rpc, request = next(self._requests)
            began = clock()
            answer = ask(rpc, request)
            found.append(clock() - began)
            assert not isinstance(answer, StageResult) or not answer.failed
        return found


def _entry(number: int) -> PodOnNode:
    qos, kube_qos = (("LSR", "Guaranteed"), ("LS", "Burstable"), ("BE", "BestEffort"))[number % 3]
    return PodOnNode(
        uid=f"pod-{number}",
        namespace="d",
        name=f"pod-{number}",
        qos=qos,
        kube_qos=kube_qos,
        priority_class="koord-batch" if qos == "BE" else "koord-prod",
        requests={},
        allocation=Allocation(cpuset="1-3") if qos == "LSR" else Allocation(),
    )


def _requests(pod: PodOnNode) -> Iterator[tuple[str, Any]]:
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    labels = {keys.QOS_CLASS: pod.qos}
    annotations = {keys.EXTENDED_RESOURCE_SPEC: BATCH} if pod.qos == "BE" else {}
    parent = "/" + LAYOUT.pod_directory(KubeQos(pod.kube_qos), pod.uid)
    rpc = "PreRunPodSandboxHook"
    yield (
        rpc,
        messages_of_call(rpc)[0](pod_meta=meta, labels=labels, annotations=annotations, cgroup_parent=parent),
    )
    rpc = "PreCreateContainerHook"
    yield (
        rpc,
        messages_of_call(rpc)[0](
            pod_meta=meta,
            container_meta={"name": "main"},
            pod_labels=labels,
            pod_annotations=annotations,
            pod_cgroup_parent=parent,
            container_resources={"cpu_quota": 100_000, "cpu_shares": 1024},
            container_envs={f"NAME_{number}": "value" for number in range(30)},
        ),
    )


def _nobody(hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None:
    assert is_ok, (hook, stage, seconds)
