"""The Linux host on trees of files: cgroup v1 and v2, both drivers, and everything that can go missing."""

import os
import shutil
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver, kubepods_directory
from koord_agent.domain.kernel.counters import CgroupMemory, MemInfo, Throttling
from koord_agent.domain.kernel.features import Feature
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan, writable_trees
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.host import Host, Vanished, WriteFailed
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots, cgroup_layout, cgroup_version
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput
from support.agent.pods import colocated_pod

STAT = "cpu  100 10 50 1000 30 4 6 7 0 0\ncpu0 50 5 25 500 15 2 3 3 0 0\ncpu1 50 5 25 500 15 2 3 4 0 0\nintr 1\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 400 kB\nMemAvailable: 700 kB\n"
COUNTED = {"inactive_anon": 1, "active_anon": 2, "unevictable": 4, "inactive_file": 8, "active_file": 16}
V1_MEMORY = "".join(f"total_{name} {size}\n" for name, size in {"cache": 9, "rss": 9, **COUNTED}.items())
V2_MEMORY = "".join(f"{name} {size}\n" for name, size in {"anon": 9, "file": 9, **COUNTED}.items())


class Tree:
    """A fake machine below a folder, with one best-effort pod."""

    def __init__(self, folder: Path, version: int, driver: Driver) -> None:
        self.roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
        self.version = version
        self.layout = CgroupLayout(driver)
        self.be = self.layout.qos_directory(KubeQos.BEST_EFFORT)
        self.pod = self.layout.pod_directory(KubeQos.BEST_EFFORT, "u-1")
        self.container = self.layout.container_directory(KubeQos.BEST_EFFORT, "u-1", "containerd://c1")
        self.roots.proc.mkdir(parents=True)
        (self.roots.proc / "stat").write_text(STAT)
        (self.roots.proc / "meminfo").write_text(MEMINFO)
        for directory in (self.layout.root, self.be, self.pod, self.container):
            if version == 1:
                self.put("cpuacct", directory, "cpuacct.usage", "7000\n")
                self.put("memory", directory, "memory.stat", V1_MEMORY)
                self.put("cpu", directory, "cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n")
                self.put("cpu", directory, "cpu.cfs_quota_us", "-1\n")
                self.put("cpuset", directory, "cpuset.cpus", "0-1\n")
            else:
                text = "usage_usec 7\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n"
                self.put("", directory, "cpu.stat", text)
                self.put("", directory, "memory.stat", V2_MEMORY)
                self.put("", directory, "cpu.max", "max 100000\n")
                self.put("", directory, "cpuset.cpus", "\n")
                self.put("", directory, "cpuset.cpus.effective", "0-1\n")
        self.host = LinuxHost(
            monotonic_ns=lambda: 5_000, roots=self.roots, version=version, layout=self.layout, jiffy=10_000_000
        )

    def put(self, hierarchy: str, directory: str, file: str, text: str) -> None:
        """Write a kernel file."""
        path = self.path(hierarchy, directory, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def path(self, hierarchy: str, directory: str, file: str) -> Path:
        """A kernel file."""
        return self.roots.cgroup / hierarchy / directory / file

    def quota_text(self) -> str:
        """What the best-effort root's quota file says."""
        hierarchy, file = ("cpu", "cpu.cfs_quota_us") if self.version == 1 else ("", "cpu.max")
        return self.path(hierarchy, self.be, file).read_text()


@pytest.fixture(params=[(1, Driver.SYSTEMD), (1, Driver.CGROUPFS), (2, Driver.SYSTEMD), (2, Driver.CGROUPFS)])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    version, driver = request.param
    return Tree(tmp_path, version, driver)


def suppress(tree: Tree, quota: str, resource: str = "cpu.cfs_quota_us", now_ms: int = 0) -> Plan:
    """A plan for the best-effort root."""
    file = CgroupFile(tree.be, resource)
    return Plan(plugin="CPUSuppress", band=Band.SUPPRESS, file=file, value=quota, created_ms=now_ms, ttl_ms=2_000)


def executor(host: Host) -> CgroupExecutor:
    """An executor without history."""
    return CgroupExecutor(host, trees=writable_trees(host.layout))


def test_it_reads_the_node_and_every_cgroup(tree: Tree) -> None:
    host: Host = tree.host
    node = host.node_counters()
    assert node is not None
    assert node.busy_ticks == 100 + 10 + 50 + 4 + 6
    assert node.memory == MemInfo(total_bytes=1_024_000, free_bytes=409_600, available_bytes=716_800)
    assert host.capacity().cpu_milli == 2_000
    pod = host.cgroup_counters(tree.pod)
    assert pod is not None
    assert (pod.at_ns, pod.cpu_usage_ns) == (5_000, 7_000)
    assert pod.memory == CgroupMemory(used_bytes=7, with_page_cache_bytes=31)
    assert pod.throttling == Throttling(nr_periods=10, nr_throttled=4)
    assert host.tree(tree.be) == (tree.be, tree.pod, tree.container)


def test_what_is_gone_or_malformed_is_not_an_error(tree: Tree) -> None:
    host = tree.host
    assert host.cgroup_counters(f"{tree.layout.root}/gone") is None
    assert host.tree(f"{tree.layout.root}/gone") == ()
    assert host.read(CgroupFile(tree.be, "cpu.idle")) is None
    tree.path("memory" if tree.version == 1 else "", tree.pod, "memory.stat").write_text("rubbish\n")
    pod = host.cgroup_counters(tree.pod)
    assert pod is not None
    assert pod.memory is None
    assert pod.cpu_usage_ns == 7_000
    (tree.roots.proc / "stat").write_text("cpu 1 2\n")
    assert host.node_counters() is None
    (tree.roots.proc / "stat").unlink()
    assert host.node_counters() is None


def test_a_quota_is_written_once_and_read_back(tree: Tree) -> None:
    run = executor(tree.host)
    (first,) = run.apply([suppress(tree, "150000")], now_ms=0)
    assert (first.result, first.held) == (Result.WRITTEN, True)
    assert tree.quota_text() == "150000"
    (second,) = run.apply([suppress(tree, "150000")], now_ms=1_000)
    assert (second.result, second.detail) == (Result.UNCHANGED, "file has the value already")
    (lifted,) = run.apply([suppress(tree, "-1", now_ms=62_000)], now_ms=62_000)
    assert lifted.result is Result.WRITTEN
    assert tree.quota_text() == ("-1" if tree.version == 1 else "max")


def test_a_value_that_another_writer_took_back_is_written_again(tree: Tree) -> None:
    run = executor(tree.host)
    run.apply([suppress(tree, "150000")], now_ms=0)
    tree.host.write(CgroupFile(tree.be, "cpu.cfs_quota_us"), "777000")
    run.apply([suppress(tree, "150000", now_ms=1_000)], now_ms=1_000)
    assert tree.quota_text() == "150000"


def test_a_vanished_directory_is_ignored_and_nothing_is_created(tree: Tree) -> None:
    run = executor(tree.host)
    file = CgroupFile(f"{tree.be}/gone", "cpu.cfs_quota_us")
    plan = Plan(plugin="x", band=Band.SUPPRESS, file=file, value="5000", created_ms=0, ttl_ms=10)
    (outcome,) = run.apply([plan], now_ms=0)
    assert outcome.result is Result.IGNORED
    with pytest.raises(Vanished):
        tree.host.write(file, "5000")
    assert not list(tree.roots.cgroup.rglob("gone"))


def test_an_invalid_value_is_refused_before_the_file_is_touched(tree: Tree) -> None:
    (outcome,) = executor(tree.host).apply([suppress(tree, "much")], now_ms=0)
    assert outcome.result is Result.REFUSED
    with pytest.raises(InvalidInput):
        tree.host.write(CgroupFile(tree.be, "cpu.cfs_quota_us"), "much")
    assert tree.quota_text() in ("-1\n", "max 100000\n")


def test_a_resource_that_this_kernel_lacks_is_ignored(tree: Tree) -> None:
    resource = "memory.pagecache_limit.enable" if tree.version == 1 else "blkio.cost.weight"
    value = "1" if tree.version == 1 else "8:0 50"
    (outcome,) = executor(tree.host).apply([suppress(tree, value, resource)], now_ms=0)
    assert outcome.result is Result.IGNORED


class Stubborn(LinuxHost):
    """A kernel that answers EINVAL, as it does for a CPU list outside the parent's."""

    def write(self, file: CgroupFile, value: str) -> None:
        raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")


def test_a_value_that_the_kernel_refuses_is_tried_again_next_round(tree: Tree) -> None:
    host = Stubborn(monotonic_ns=lambda: 0, roots=tree.roots, version=tree.version, layout=tree.layout)
    run = executor(host)
    for now_ms in (0, 1_000):
        (outcome,) = run.apply([suppress(tree, "150000", now_ms=now_ms)], now_ms=now_ms)
        assert outcome.result is Result.FAILED
        assert "Invalid argument" in outcome.detail


def test_a_link_in_the_place_of_a_knob_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("-1")
    hierarchy, file = ("cpu", "cpu.cfs_quota_us") if tree.version == 1 else ("", "cpu.max")
    knob = tree.path(hierarchy, tree.be, file)
    knob.unlink()
    knob.symlink_to(outside)
    with pytest.raises(WriteFailed):
        tree.host.write(CgroupFile(tree.be, "cpu.cfs_quota_us"), "150000")
    assert outside.read_text() == "-1"


def test_the_driver_is_seen_from_the_directories(tree: Tree) -> None:
    assert cgroup_layout(tree.roots.cgroup, tree.version).driver is tree.layout.driver


def test_a_plain_folder_is_not_cgroup_v2(tmp_path: Path) -> None:
    assert cgroup_version(tmp_path) == 1
    with pytest.raises(OSError, match="No such file"):
        cgroup_version(tmp_path / "gone")


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/unified", os.R_OK), reason="no cgroup2 mount beside v1 here")
def test_a_cgroup2_mount_is_recognised_by_its_magic() -> None:
    assert cgroup_version(Path("/sys/fs/cgroup/unified")) == 2


def test_the_running_machine_can_be_measured() -> None:
    host = LinuxHost(monotonic_ns=lambda: 1, version=1)
    node = host.node_counters()
    assert node is not None
    assert node.busy_ticks > 0
    assert host.capacity().cpu_milli >= 1_000
    assert len(host.cpu_topology()) in (0, host.capacity().cpu_milli // 1_000)


def test_pods_whose_root_does_not_exist_are_a_problem_that_is_told(tree: Tree) -> None:
    agent = NodeAgent("n", tree.host, Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)), interval_ms=1_000)
    listed = colocated_pod("u-1", "BE")
    agent.known = KnownPods(pods={listed.uid: listed}, at_ms=1_000)
    agent.desired = view_of(DesiredNode(node="n"))

    def told() -> list[str]:
        return [each for each in agent.run_cycle(1_000).problems if each.startswith("cgroup of the pods")]

    agent.kubelet_cgroup_root = "/"
    assert told() == []
    agent.kubelet_cgroup_root = "/kubelet"
    (problem,) = told()
    assert kubepods_directory("/kubelet", tree.layout.driver) in problem
    agent.kubelet_cgroup_root = None
    for hierarchy in {path.parent for path in tree.roots.cgroup.glob(f"*/{tree.layout.root}")} or {tree.roots.cgroup}:
        shutil.rmtree(hierarchy / tree.layout.root)
    (problem,) = told()
    assert "does not exist" in problem
    assert "--kubelet-cgroup-root" in problem
    agent.known = KnownPods(at_ms=1_000)
    assert told() == [], "a machine without pods needs no root of pods"


PSI = "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


@pytest.mark.parametrize(
    "hierarchies",
    [("cpuacct", "cpuacct", "cpuacct"), ("cpu", "memory", "blkio")],
    ids=["one hierarchy", "each its own"],
)
def test_psi_of_v1_kernels_is_read_where_it_is(tmp_path: Path, hierarchies: tuple[str, str, str]) -> None:
    """Anolis has all files in cpuacct, TencentOS each in the hierarchy of its controller (koordinator#3201)."""
    tree = Tree(tmp_path, 1, Driver.CGROUPFS)
    assert tree.host.pressure(tree.pod) is None
    assert not tree.host.features().usable(Feature.PSI)
    for directory in (tree.layout.root, tree.pod):
        for hierarchy, file in zip(hierarchies, ("cpu", "memory", "io"), strict=True):
            tree.put(hierarchy, directory, f"{file}.pressure", PSI)
    found = tree.host.pressure(tree.pod)
    assert found is not None
    assert {resource: one.some.avg10 for resource, one in found.items()} == {"cpu": 1.5, "mem": 1.5, "io": 1.5}
    assert tree.host.features().usable(Feature.PSI)
