"""The agent with exactly the rights of its DaemonSet, in a container of a real containerd: they suffice for its pods,
and for nothing else on the node.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from koord_agent.doctor import Examination
from koord_agent.domain.kernel.features import Feature
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events.envelope import AggregateRef
from koordcore.values import codec
from koordctl.stack.containers import missing_program
from support.agent.fake_kubelet import FakeKubelet
from support.agent.real_node import BE, LSR, V1, Node, kubelet_document, node_in
from support.agent.shipped_agent import ShippedAgent, host_folder, shipped_pod
from support.certificates import write_certificate
from support.until import DEADLINE_SECONDS, until, until_blocking

LACKING = missing_program()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.nats,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
    pytest.mark.skipif(not os.access(V1 / "cpu" / "tasks", os.W_OK), reason="needs a writable cgroup v1"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs"),
]
KUBEPODS = "kubepods"
AGENT = (sys.executable, "-m", "koord_agent")
LOOK = """
import ctypes, errno, json, os, socket, sys
from pathlib import Path
def tried(do):
    try:
        do()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def put(path):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)
libc = ctypes.CDLL(None, use_errno=True)
def called(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), "")
def connect():
    socket.socket(socket.AF_UNIX).connect("/host-run/containerd/containerd.sock")
status = Path("/proc/self/status").read_text()
own = next(line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":devices:" in line)
print(json.dumps({
    "capabilities": int(status.split("CapBnd:")[1].split()[0], 16) | int(status.split("CapEff:")[1].split()[0], 16),
    "new privileges": status.split("NoNewPrivs:")[1].split()[0],
    "seccomp": status.split("Seccomp:")[1].split()[0],
    "root of init": tried(lambda: os.listdir("/proc/1/root/")),
    "environment of init": tried(lambda: Path("/proc/1/environ").read_bytes()),
    "ptrace of init": tried(lambda: called(libc.ptrace(16, 1, 0, 0))),
    "mount": tried(lambda: called(libc.mount(b"t", b"/host-cgroup", b"tmpfs", 0, None))),
    "device": tried(lambda: os.mknod("/var/lib/koordlet/disk", 0o60600, os.makedev(254, 0))),
    "settings of the kernel": tried(lambda: put("/proc/sys/kernel/core_pattern")),
    "sysfs": tried(lambda: put("/host-sys/kernel/mm/transparent_hugepage/enabled")),
    "devices": tried(lambda: put("/host-sys/devices/system/cpu/cpu1/online")),
    "file systems": tried(lambda: (Path("/host-sys-fs/made")).mkdir()),
    "release agent": tried(lambda: put("/host-cgroup/memory/release_agent")),
    "own devices": tried(lambda: put("/host-cgroup/devices" + own + "/devices.allow")),
    "own image": tried(lambda: Path("/made").touch()),
    "kubelet": tried(lambda: Path("/var/lib/kubelet/made").touch()),
    "Secrets of pods": sorted(os.listdir("/var/lib/kubelet/pods")),
    "files of the kubelet": sorted(os.listdir("/var/lib/kubelet")),
    "runtime": tried(connect),
}))
"""

SLEEP = "import time; print('sleeps', flush=True); time.sleep(3600)"
ENTER = """
import errno, json, os
from pathlib import Path
found = {}
for folder in Path("/proc").iterdir():
    try:
        word = (folder / "cmdline").read_bytes().split(b"\\0")[-2:-1] if folder.name.isdigit() else []
    except OSError:
        continue
    for name in ("like-the-agent", "like-the-installer"):
        if word == [name.encode()]:
            for what, look in (("environ", Path.read_bytes), ("root/etc/koord", os.listdir)):
                try:
                    look(folder / what)
                    found[name + " " + what] = "open"
                except OSError as error:
                    found[name + " " + what] = errno.errorcode[error.errno]
print(json.dumps(found))
"""


@pytest.fixture
def node(tmp_path: Path) -> Generator[Node]:
    with node_in(tmp_path, kubepods=KUBEPODS) as found:
        yield found


@pytest.fixture
def shipped(node: Node) -> Generator[ShippedAgent]:
    """The files of the node, and what the cluster gives to the pod."""
    folder = node.folder
    for path in ("volume-certificate", "runtime", "kubelet/pods/uid/volumes/secret"):
        (folder / path).mkdir(parents=True)
    write_certificate(folder / "volume-certificate")
    (folder / "kubelet/pods/uid/volumes/secret/password").write_text("hidden")
    (folder / "kubelet/cpu_manager_state").write_text('{"policyName":"none","defaultCpuSet":"","checksum":1}')
    os.link(folder / "containerd.sock", folder / "runtime/containerd.sock")
    agent = ShippedAgent(node.containers, folder, shipped_pod())
    try:
        yield agent
    finally:
        agent.stop()


def output(agent: ShippedAgent, name: str) -> str:
    """What a command in the container printed, once it has printed a line."""
    file = agent.log / f"{name}.log"
    until_blocking(lambda: file.exists() and "\n" in file.read_text(), f"the output of {name}")
    return "".join(line.split(" ", 3)[3] for line in file.read_text().splitlines(keepends=True))


def test_the_rights_of_the_agent_open_nothing_else_on_its_node(shipped: ShippedAgent) -> None:
    shipped.start("look", (sys.executable, "-c", LOOK), {})
    refused = ("EPERM", "EACCES", "EROFS")
    seen: dict[str, Any] = json.loads(output(shipped, "look"))
    closed = {name: value for name, value in seen.items() if value in refused}

    assert seen["capabilities"] == 0
    assert (seen["new privileges"], seen["seccomp"]) == ("1", "2")
    assert sorted(seen.keys() - closed.keys()) == sorted(
        ["capabilities", "new privileges", "seccomp", "Secrets of pods", "files of the kubelet", "runtime"]
    ), seen
    assert seen["Secrets of pods"] == []
    assert "cpu_manager_state" in seen["files of the kubelet"]
    assert seen["runtime"] == "done", "a read-only mount does not close a socket"


def test_the_agent_enters_no_process_of_root_that_has_a_capability(shipped: ShippedAgent, node: Node) -> None:
    """The kernel compares users and capabilities. So a pod of root that may change the node needs a capability."""
    (installer,) = shipped_pod(overlay="k8s/nodes/criproxy.yaml", name="koord-criproxy")["containers"]
    pod = shipped_pod()
    pod["containers"][0]["securityContext"] = installer["securityContext"]
    other = ShippedAgent(node.containers, node.folder, pod)
    try:
        for agent, name in ((shipped, "like-the-agent"), (other, "like-the-installer")):
            agent.start(name, (sys.executable, "-c", SLEEP, name), {})
            output(agent, name)
        shipped.start("enter", (sys.executable, "-c", ENTER), {})
        assert json.loads(output(shipped, "enter")) == {
            "like-the-agent environ": "open",
            "like-the-agent root/etc/koord": "open",
            "like-the-installer environ": "EACCES",
            "like-the-installer root/etc/koord": "EACCES",
        }
    finally:
        other.stop()


def test_the_agent_finds_in_its_container_what_it_finds_on_the_machine(shipped: ShippedAgent) -> None:
    """All but the cycle counters: the gate CPICollector needs `k8s/agent-gates`."""
    shipped.start("doctor", (*AGENT, "doctor"), {"agent_mode": "daemonSet"})
    flags = (f"--var-lib-kubelet-dir={shipped.log.parent}/kubelet", f"--run-root-dir={shipped.log.parent}/run")
    told = subprocess.run((*AGENT, "doctor", *flags), capture_output=True, check=True, timeout=DEADLINE_SECONDS).stdout
    inside, outside = (
        {str(found["feature"]) for found in codec.decode(text, Examination).findings if found["usable"]}
        for text in (output(shipped, "doctor").encode(), told)
    )

    assert outside - inside - {Feature.CPI.value} == set()
    assert {Feature.CONTAINER_RUNTIME.value, Feature.CGROUP_COUNTERS.value} <= inside


@pytest.fixture
async def log(fresh_nats_server: NatsServer, node: Node) -> AsyncGenerator[Bus]:
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="demo", user="agent")
    await bootstrap_bus(settings)
    async with open_bus(settings) as bus:
        await bus.desired.put(node.desired)
        yield bus


async def test_the_rights_of_the_agent_suffice_for_its_pods(
    node: Node, shipped: ShippedAgent, log: Bus, fresh_nats_server: NatsServer
) -> None:
    """It answers hooks, repairs what started without them, reports, and keeps its state, audit log and registration."""
    kubelet = FakeKubelet()
    folder = node.folder
    node.start_proxy()
    sandboxes = {pod.name: await asyncio.to_thread(node.run_sandbox, pod) for pod in (LSR, BE)}
    ids = {pod.name: await asyncio.to_thread(node.start, pod, sandboxes[pod.name]) for pod in (LSR, BE)}
    assert node.value(LSR, ids["lsr"], "quota") == "100000"
    kubelet.lists(kubelet_document(LSR, ids["lsr"]), kubelet_document(BE, ids["be"]))
    flags = {
        "cluster": "demo",
        "nats-urls": fresh_nats_server.url,
        "kubelet-address": "127.0.0.1",
        "kubelet-insecure-tls": "true",
        "kubelet-read-only-port": kubelet.server.server_port,
        "kubelet-sync-interval": "1s",
        "disable-query-kubelet-config": "true",
        "feature-gates": "AuditEvents=true",
        "http-port": 0,
    }
    own = [word for word in shipped.container["args"] if not word.startswith("--http-port")]
    words = (*AGENT, *own, *(f"--{name}={value}" for name, value in flags.items()))
    shipped.start("agent", words, {"agent_mode": "daemonSet", "NODE_NAME": "n"})
    try:
        await until(lambda: node.value(LSR, ids["lsr"], "quota") == "-1", "the quota of the LSR pod is lifted")
        await until(lambda: node.value(LSR, ids["lsr"], "cpus") == "1", "the LSR pod has its CPU")
        await until(lambda: node.value(BE, ids["be"], "shares") == "512", "the batch pod has its shares")
        await until(lambda: (folder / "hookserver.d/koordlet.json").exists(), "the hooks are registered")
        await until(lambda: (folder / "sockets/koordlet.sock").is_socket(), "the hooks are served")
        await until(lambda: any((folder / "audit").iterdir()), "the audit log is written")
        assert any(host_folder(folder, "/var/lib/koordlet").iterdir())

        async def told() -> bool:
            return bool(await log.events.read_aggregate(AggregateRef("nodestate", "n")))

        await until(told, "facts of the node are in the log")
        lines = [json.loads(line) for line in output(shipped, "agent").splitlines() if line.startswith("{")]
        troubles = {line["logger"] for line in lines if line["level"] in ("warning", "error")}
        # No access file, and a containerd without NRI.
        assert troubles <= {"service.access", "agent.nri"}, lines
    finally:
        kubelet.close()
