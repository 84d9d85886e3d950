"""The agent's hook server in a process of its own, so that a test can freeze it and kill it.

    python -m support.agent.hook_process FOLDER KUBEPODS

It looks at this machine once with the desired state in FOLDER/desired.json, serves on FOLDER/koordlet.sock, and prints
`ready`.
"""

import signal
import sys
import time
from pathlib import Path

from koord_agent.domain.hooks.call import HookRules, Stage
from koord_agent.domain.hooks.plugins import FailurePolicy, enabled_plugins
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.gates import GATES
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.hooks.answering import HookAnswers
from koord_agent.shell.hooks.hook_server import HookServer
from koord_agent.shell.hooks.pod_files import LinuxDeviceFiles, LinuxPodFiles
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.store.audit_log import no_audit
from koordcore.ports.desired import DesiredNode
from koordcore.service.flags import parse_feature_gates
from koordcore.values import codec


def agent_of(layout: CgroupLayout, desired: DesiredNode) -> NodeAgent:
    """An agent of this machine that knows a desired state."""
    host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=layout)
    topology = TopologyReporter(host, host.cpu_topology())
    agent = NodeAgent(
        "n", host, Measurement(monitor=NodeMonitor(collect_interval_ms=1_000), topology=topology), interval_ms=1_000
    )
    agent.desired = view_of(desired)
    return agent


def main() -> None:
    folder, layout = Path(sys.argv[1]), CgroupLayout(Driver.CGROUPFS, kubepods=sys.argv[2])
    agent = agent_of(layout, codec.decode((folder / "desired.json").read_bytes(), DesiredNode))
    agent.run_cycle(int(time.monotonic() * 1000))
    host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=layout)
    gates = parse_feature_gates(["GPUEnvInject=true"], GATES)

    def observe(hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None:
        assert is_ok, (hook, stage, seconds)

    answers = HookAnswers(
        plugins=enabled_plugins(gates.enabled),
        policy=FailurePolicy.FAIL,
        look=lambda: agent.last_look,
        machine=lambda: HookRules(devices=LinuxDeviceFiles(host.roots.sys)),
        files=LinuxPodFiles(host, host.roots, audit=no_audit, now_ms=lambda: int(time.monotonic() * 1000)),
        observe=observe,
    )
    server = HookServer(folder / "koordlet.sock", answers, runtime="containerd")
    server.start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    server.stop()


if __name__ == "__main__":
    main()
