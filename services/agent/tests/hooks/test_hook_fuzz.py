"""Damaged annotations and requests are used or refused, and the hook server answers the next call."""

import json
import random
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.hooks.call import (
    POD_STAGES,
    HookCall,
    HookedContainer,
    HookedPod,
    HookOptions,
    HookRules,
    HookValues,
    Mode,
    Stage,
)
from koord_agent.domain.hooks.plugins import FailurePolicy, enabled_plugins, run_stage
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.node.cpu_pools import SharedPool
from koord_agent.domain.strategies.cpuset import CpusetRule
from koord_agent.domain.strategies.group_identity import BvtKernel
from koord_agent.shell.hooks.answering import HookAnswers
from koord_agent.shell.hooks.hook_server import HookServer
from koord_agent.shell.hooks.pod_files import LinuxPodFiles
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koordcore.protocol import keys
from koordcore.runtime_api.hooks import CONTAINER_CALLS, POD_CALLS, SERVICE, messages_of_call
from support.depth import repeats
from support.mutations import damaged, mutated
from support.until import DEADLINE_SECONDS

PODS, REQUESTS = repeats(5_000), repeats(1_500)
QUARTER = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}
ANNOTATIONS: dict[str, Any] = {
    keys.EXTENDED_RESOURCE_SPEC: {"containers": {"main": {"requests": QUARTER, "limits": QUARTER}}},
    keys.RESOURCE_STATUS: {"cpuset": "2-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}]},
    keys.DEVICE_ALLOCATED: {"gpu": [{"minor": 0, "id": "GPU-1", "resources": {"koordinator.sh/gpu-core": "50"}}]},
    keys.RESCTRL: {"llc": {"schemata": {"range": [0, 30]}}, "mb": {"schemata": {"percent": 20}}},
    keys.NETWORK_QOS: {"IngressLimit": "10M", "EgressLimit": "20M"},
    keys.OOM_SCORE_ADJ_SPEC: {"main": -500},
}
RULES = HookRules(
    bvt_kernel=BvtKernel(has_file=True),
    cpuset=CpusetRule(shared=(SharedPool(0, 0, "0-3"), SharedPool(1, 1, "4-7"))),
    options=HookOptions(),
)


def not_observed(hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None:
    """Durations are not recorded."""


def annotations(rng: random.Random) -> dict[str, str]:
    """The annotations of a pod. Of each, the JSON value or its text may be damaged."""
    found = dict[str, str]()
    for key, value in ANNOTATIONS.items():
        how = rng.randrange(3)
        text = json.dumps(mutated(rng, value) if how == 1 else value)
        found[key] = damaged(rng, text.encode()).decode(errors="replace") if how == 2 else text
    return found


@pytest.mark.fuzz
def test_damaged_annotations_are_used_or_refused_as_invalid_input_at_every_stage() -> None:
    rng, plugins = random.Random(3), enabled_plugins(lambda _: True, has_resctrl=True)
    refused, accepted = set[str](), set[str]()
    for _ in range(PODS):
        qos = rng.choice(["LSE", "LSR", "LS", "BE", "SYSTEM", "", "x"])
        pod = HookedPod(
            name="p",
            namespace="d",
            uid="u1",
            labels={keys.QOS_CLASS: qos},
            annotations=annotations(rng),
            cgroup_parent="/kubepods/podu1",
        )
        for stage in Stage:
            container = (
                None if stage in POD_STAGES else HookedContainer(name="main", id="containerd://c", before=HookValues())
            )
            call = HookCall(mode=Mode.PROXY, stage=stage, pod=pod, container=container)
            for done in run_stage(plugins, call, RULES, FailurePolicy.IGNORE).done:
                (refused if done.error else accepted).add(done.plugin)
    assert refused == {"CPUNormalization", "CPUSetAllocator", "gpu env inject", "rdma device inject"}
    assert refused | {"BatchResource", "GroupIdentity", "Resctrl"} <= accepted


@pytest.mark.fuzz
def test_server_refuses_damaged_requests_and_answers_the_next_one(tmp_path: Path) -> None:
    rng, roots = random.Random(4), HostRoots(cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=CgroupLayout(Driver.CGROUPFS), version=1)
    answers = HookAnswers(
        plugins=enabled_plugins(lambda _: True),
        policy=FailurePolicy.IGNORE,
        look=lambda: None,
        machine=lambda: RULES,
        files=LinuxPodFiles(host, roots, audit=lambda event, verbosity: None, now_ms=lambda: 0),
        observe=not_observed,
    )
    server = HookServer(tmp_path / "hooks.sock", answers, runtime="containerd")
    server.start()
    codes = dict[grpc.StatusCode, int]()
    try:
        with grpc.insecure_channel(f"unix://{tmp_path}/hooks.sock", options=[("grpc.enable_http_proxy", 0)]) as channel:
            for _ in range(REQUESTS):
                rpc = rng.choice([*POD_CALLS, *CONTAINER_CALLS])
                body = request(rng, rpc)
                code = _code(channel, rpc, damaged(rng, body) if rng.randrange(2) else body)
                codes[code] = codes.get(code, 0) + 1
            rpc = "PreCreateContainerHook"
            assert _code(channel, rpc, request(rng, rpc)) is grpc.StatusCode.OK
    finally:
        server.stop()
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.INTERNAL}, codes


def request(rng: random.Random, rpc: str) -> bytes:
    """A valid request whose annotations may be damaged."""
    meta = {"name": "p", "uid": "u1", "namespace": "d"}
    labels, resources = {keys.QOS_CLASS: "BE"}, {"cpu_period": 100_000, "cpu_shares": 2}
    given: dict[str, Any] = (
        {"pod_meta": meta, "labels": labels, "annotations": annotations(rng), "cgroup_parent": "/kubepods/podu1"}
        if rpc in POD_CALLS
        else {
            "pod_meta": meta,
            "container_meta": {"name": "main", "id": "c1"},
            "container_resources": resources,
            "pod_labels": labels,
            "pod_annotations": annotations(rng),
            "container_envs": {"A": "1"},
            "pod_cgroup_parent": "/kubepods/podu1",
        }
    )
    return messages_of_call(rpc)[0](**given).SerializeToString()


def _code(channel: grpc.Channel, rpc: str, body: bytes) -> grpc.StatusCode:
    unary: Any = channel.unary_unary
    try:
        unary(f"/{SERVICE}/{rpc}")(body, timeout=DEADLINE_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        refused: Any = error
        return refused.code()
    return grpc.StatusCode.OK
