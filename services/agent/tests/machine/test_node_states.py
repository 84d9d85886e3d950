"""What a kubelet and the cgroup tree say about pods: taken, kept while they are silent, frozen where not understood."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import STALE_MS, KnownPods, known_after
from koord_agent.shell.kubelet.kubelet import Kubelet, KubeletAddress, KubeletAway
from koord_agent.shell.kubelet.kubelet_states import KubeletStates
from koord_agent.shell.kubelet.pod_events import CgroupEvent, PodWatcher
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.agent.fake_kubelet import FakeKubelet
from support.until import until

CONFIGURATION = {
    "kubeletconfig": {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "reservedSystemCPUs": "0-1",
        "topologyManagerPolicy": "single-numa-node",
        "logging": {"flushFrequency": {"odd": ["shapes"]}},
    }
}


def pod(uid: str, **spec: Any) -> dict[str, Any]:
    """A pod as the kubelet serves it."""
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [
                {"name": "c", "containerID": f"containerd://{uid}-c", "state": {"running": {"startedAt": "x"}}}
            ],
        },
    }


def listed(*items: object) -> list[bytes]:
    """Objects as they stand in a list of the kubelet."""
    return [json.dumps(item).encode() for item in items]


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    fake = FakeKubelet()
    yield fake
    fake.close()


class Following:
    """States that follow a fake kubelet; time stands still unless a test moves it."""

    def __init__(self, kubelet: FakeKubelet, folder: Path) -> None:
        self.now_ms = 1_000
        self.lists = 0
        self.states = KubeletStates(
            Kubelet(kubelet.address, now=time.monotonic),
            folder=folder,
            sync_seconds=3_600.0,
            now_ms=lambda: self.now_ms,
            monotonic=lambda: self.now_ms / 1000,
            logger=logger("agent"),
            changed=self.listed,
        )

    def listed(self) -> None:
        self.lists += 1


async def test_pods_come_with_their_containers(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.lists(pod("a"), pod("b"))
    following = Following(kubelet, tmp_path)
    assert following.states.trouble() is not None
    await following.states.sync()
    known = following.states.known
    assert set(known.pods) == {"a", "b"}
    assert [c.container_id for c in known.pods["a"].containers] == ["containerd://a-c"]
    assert known.pods["a"].containers[0].is_running
    assert (following.lists, following.states.trouble()) == (1, None)


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (200, b"no json"), (200, b'{"items":[]}'), (200, b'{"items":7}'), (401, b"")]
)
async def test_a_kubelet_that_answers_badly_keeps_the_last_list(
    kubelet: FakeKubelet, tmp_path: Path, answer: tuple[int, bytes]
) -> None:
    kubelet.lists(pod("a"))
    following = Following(kubelet, tmp_path)
    await following.states.sync()
    kubelet.answers["/pods/"] = answer
    await following.states.sync()
    assert set(following.states.known.pods) == {"a"}
    assert following.lists == 1


async def test_an_error_that_nobody_expected_does_not_end_the_following(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.lists(pod("a"))
    lists: list[int] = []

    def changed() -> None:
        lists.append(len(states.known.pods))
        if len(lists) == 1:
            raise KeyError("what nobody thought of")

    states = KubeletStates(
        Kubelet(kubelet.address, now=time.monotonic),
        folder=tmp_path,
        sync_seconds=0.01,
        now_ms=lambda: 1_000,
        monotonic=time.monotonic,
        logger=logger("agent"),
        changed=changed,
    )
    with capture_logs() as lines:
        running = asyncio.create_task(states.run())
        await until(lambda: len(lists) >= 2 or running.done())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert lists[:2] == [1, 1]
    told = [str(line.get("reason")) for line in lines]
    assert any(reason.startswith("/pods/: KeyError: 'what nobody thought of' (test_node_states.py:") for reason in told)


async def test_a_kubelet_that_is_gone_freezes_its_pods_after_a_minute(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.lists(pod("a"))
    following = Following(kubelet, tmp_path)
    await following.states.sync()
    kubelet.server.shutdown()
    kubelet.server.server_close()
    following.now_ms += STALE_MS
    await following.states.sync()
    known = following.states.known
    assert known.frozen(following.now_ms) == frozenset()
    assert known.frozen(following.now_ms + 1) == {"a"}


def test_a_pod_that_cannot_be_read_stays_as_it_was_and_is_not_touched() -> None:
    first = known_after(KnownPods(), listed(pod("a"), pod("b")), 1_000)
    broken = pod("a")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "one and a half"
    second = known_after(first, listed(broken, pod("b"), {"metadata": {}}, pod("new", containers=7)), 2_000)
    assert set(second.pods) == {"a", "b"}
    assert second.pods["a"] is first.pods["a"]
    assert second.frozen(2_000) == {"a"}
    assert len(second.problems) == 3


def test_pods_that_are_as_they_were_are_the_same_objects_and_what_changed_is_read_anew() -> None:
    first = known_after(KnownPods(), listed(pod("a"), pod("b")), 1_000)
    second = known_after(first, listed(pod("b"), pod("a")), 2_000)
    assert second.pods is first.pods
    assert second.at_ms == 2_000
    changed = pod("a")
    changed["metadata"]["labels"]["koordinator.sh/qosClass"] = "BE"
    third = known_after(second, listed(changed, pod("b")), 3_000)
    assert third.pods["a"].is_best_effort
    assert third.pods["b"] is first.pods["b"]
    assert known_after(third, listed(7, pod("b")), 4_000).pods == {"b": first.pods["b"]}


async def test_the_configuration_and_what_the_static_manager_pinned(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.answers["/configz"] = (200, json.dumps(CONFIGURATION).encode())
    (tmp_path / "cpu_manager_state").write_text('{"policyName":"static","entries":{"u":{"c":"2-3"}},"checksum":1}')
    following = Following(kubelet, tmp_path)
    await following.states.configure()
    configuration = following.states.configuration
    assert configuration is not None
    assert configuration.is_static
    assert configuration.reserved_system_cpus == "0-1"
    assert following.states.cpu_entries == {"u": {"c": "2-3"}}
    (tmp_path / "cpu_manager_state").write_text('{"entries": {')
    await following.states.configure()
    assert following.states.cpu_entries == {"u": {"c": "2-3"}}


async def test_lists_beside_the_regular_ones_are_limited(kubelet: FakeKubelet, tmp_path: Path) -> None:
    following = Following(kubelet, tmp_path)
    taken = 0
    for _ in range(50):
        following.states.sync_soon()
        soon = following.states._soon  # pyright: ignore[reportPrivateUsage]
        taken += soon.is_set()
        soon.clear()
    assert taken == 10
    following.now_ms += 1_000
    for _ in range(50):
        following.states.sync_soon()
        soon = following.states._soon  # pyright: ignore[reportPrivateUsage]
        taken += soon.is_set()
        soon.clear()
    assert taken == 15


def test_the_token_is_read_anew_and_a_missing_one_is_no_crash(kubelet: FakeKubelet, tmp_path: Path) -> None:
    address = KubeletAddress(host="127.0.0.1", port=1, token_file=tmp_path / "none", timeout_seconds=0.5)
    with pytest.raises(KubeletAway):
        Kubelet(address, now=time.monotonic).pods()
    seen: list[tuple[str, str, int]] = []
    kubelet.answers["/pods/"] = (403, b"no")
    observed = Kubelet(
        kubelet.address, now=time.monotonic, observe=lambda verb, path, code, _: seen.append((verb, path, code))
    )
    with pytest.raises(KubeletAway):
        observed.pods()
    assert seen == [("GET", "/pods/", 403)]


def test_a_token_that_is_none_is_refused_without_being_told(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-one\nsecret-two")
    address = KubeletAddress(host="127.0.0.1", port=1, token_file=file, timeout_seconds=0.5)
    with pytest.raises(KubeletAway) as refused:
        Kubelet(address, now=time.monotonic).pods()
    assert "secret" not in str(refused.value)


def test_a_pod_that_only_the_kubelet_knows_is_measured_and_forgotten_when_it_goes() -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=4_000, memory_bytes=8 << 30)])
    host = fleet.host("n")
    monitor = NodeMonitor(collect_interval_ms=1_000)
    agent = NodeAgent("n", host, Measurement(monitor=monitor), interval_ms=1_000)
    agent.desired = view_of(DesiredNode(node="n"))
    agent.known = known_after(KnownPods(), listed(pod("a")), 0)
    host.start_pod(agent.known.pods["a"])
    for second in range(1, 4):
        fleet.advance(float(second))
        tick = agent.run_cycle(second * 1_000)
        assert tick.facts == ()
    assert agent.report(3_000, str) is not None
    assert monitor.store.objects(Kind.POD_CPU) == ["a"]
    agent.known = KnownPods(at_ms=4_000)
    agent.run_cycle(4_000)
    assert monitor.store.objects(Kind.POD_CPU) == []


LAYOUT = CgroupLayout(Driver.CGROUPFS)


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    for qos in KubeQos:
        (tmp_path / LAYOUT.qos_directory(qos)).mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_directories_of_pods_and_containers_are_seen_as_they_come_and_go(cgroups: Path) -> None:
    there = cgroups / LAYOUT.pod_directory(KubeQos.BURSTABLE, "old")
    there.mkdir()
    watcher = PodWatcher(str(cgroups), LAYOUT)
    assert watcher.classes == 3
    assert watcher.read() == []
    new = cgroups / LAYOUT.pod_directory(KubeQos.BEST_EFFORT, "new")
    new.mkdir()
    assert watcher.read() == [CgroupEvent(appeared=True, pod_id="new")]
    (new / "c1").mkdir()
    (there / "c2").mkdir()
    (cgroups / LAYOUT.root / "podfile").write_text("no directory")
    assert watcher.read() == [
        CgroupEvent(appeared=True, pod_id="new", container_id="c1"),
        CgroupEvent(appeared=True, pod_id="old", container_id="c2"),
    ]
    shutil.rmtree(new)
    assert CgroupEvent(appeared=False, pod_id="new") in watcher.read()
    watcher.close()


def test_a_container_that_came_with_its_pod_is_not_missed(cgroups: Path) -> None:
    watcher = PodWatcher(str(cgroups), LAYOUT)
    made = cgroups / LAYOUT.pod_directory(KubeQos.BURSTABLE, "p") / "c1"
    made.mkdir(parents=True)
    assert watcher.read() == [
        CgroupEvent(appeared=True, pod_id="p"),
        CgroupEvent(appeared=True, pod_id="p", container_id="c1"),
    ]
    watcher.close()


def test_without_class_directories_there_is_nothing_to_watch_yet(tmp_path: Path) -> None:
    watcher = PodWatcher(str(tmp_path), LAYOUT)
    assert (watcher.classes, watcher.read()) == (0, [])
    watcher.close()
