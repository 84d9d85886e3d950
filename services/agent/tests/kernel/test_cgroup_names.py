"""Cgroup names, values and equality where the vectors do not go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel import cgroup_files as files
from koord_agent.domain.kernel.cgroup_layout import (
    CgroupLayout,
    Driver,
    HostApplication,
    detect_layout,
    kubepods_directory,
)
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.plans.plan import OutsideTree, require_inside
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

uids = st.uuids().map(str)


@given(driver=st.sampled_from(Driver), qos=st.sampled_from(KubeQos), uid=uids)
def test_a_pod_directory_parses_back_and_lies_in_its_class(driver: Driver, qos: KubeQos, uid: str) -> None:
    layout = CgroupLayout(driver)
    directory = layout.pod_directory(qos, uid)
    parent, _, name = directory.rpartition("/")
    assert parent == layout.qos_directory(qos)
    assert layout.parse_pod(name) == (uid if driver is Driver.CGROUPFS else uid.replace("-", "_"))
    require_inside(directory, [layout.root])


@given(
    driver=st.sampled_from(Driver), qos=st.sampled_from(KubeQos), uid=uids, above=st.sampled_from(["/kubelet", "a/b-c"])
)
def test_a_pod_below_a_cgroup_root_of_the_kubelet_parses_back(
    driver: Driver, qos: KubeQos, uid: str, above: str
) -> None:
    layout = CgroupLayout(driver, kubepods=kubepods_directory(above, driver))
    directory = layout.pod_directory(qos, uid)
    parent, _, name = directory.rpartition("/")
    assert parent == layout.qos_directory(qos)
    assert layout.parse_pod(name) == (uid if driver is Driver.CGROUPFS else uid.replace("-", "_"))
    require_inside(directory, [layout.root])


def test_the_root_of_the_pods_follows_the_cgroup_root_of_the_kubelet() -> None:
    assert kubepods_directory("/", Driver.SYSTEMD) == kubepods_directory("", Driver.SYSTEMD) == "kubepods.slice"
    assert kubepods_directory("/kubelet", Driver.CGROUPFS) == "kubelet/kubepods"
    assert kubepods_directory("/kubelet", Driver.SYSTEMD) == "kubelet.slice/kubelet-kubepods.slice"
    assert kubepods_directory("/a/b-c", Driver.SYSTEMD) == "a.slice/a-b_c.slice/a-b_c-kubepods.slice"
    kind = CgroupLayout(Driver.SYSTEMD, kubepods="kubelet.slice/kubelet-kubepods.slice")
    assert kind.pod_directory(KubeQos.BEST_EFFORT, "u-1") == (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podu_1.slice"
    )


USUAL = ("kubepods", "docker", "system.slice", "system.slice/kubelet.service")
KIND = ("kubelet", "kubelet/kubepods", "init.scope")
SYSTEMD_KIND = ("kubelet.slice", "kubelet.slice/kubelet-kubepods.slice", "init.scope")
TWO = ("a/kubepods", "b/kubepods")


@pytest.mark.parametrize(
    ("directories", "arguments", "given_root", "driver", "root"),
    [
        (USUAL, None, "", Driver.CGROUPFS, "kubepods"),
        (USUAL, ["--cgroup-root=/kubelet"], "", Driver.CGROUPFS, "kubepods"),  # a kubelet of another node
        (USUAL, ["--cgroup-driver=cgroupfs"], "/kubelet", Driver.CGROUPFS, "kubelet/kubepods"),  # the setting counts
        (KIND, None, "", Driver.CGROUPFS, "kubelet/kubepods"),
        (SYSTEMD_KIND, None, "", Driver.SYSTEMD, "kubelet.slice/kubelet-kubepods.slice"),
        ((*USUAL, *KIND), None, "", Driver.CGROUPFS, "kubepods"),
        ((*USUAL, *KIND), ["--cgroup-root", "/kubelet"], "", Driver.CGROUPFS, "kubelet/kubepods"),
        (("a/b/kubepods",), None, "/a/b", Driver.CGROUPFS, "a/b/kubepods"),
        (TWO, None, "", Driver.SYSTEMD, "kubepods.slice"),
        (TWO, None, "b", Driver.CGROUPFS, "b/kubepods"),
        ((), ["--cgroup-driver=cgroupfs", "--cgroup-root=/k"], "", Driver.CGROUPFS, "k/kubepods"),
        ((), None, "", Driver.SYSTEMD, "kubepods.slice"),
    ],
)
def test_the_root_of_the_pods_is_found(
    directories: tuple[str, ...], arguments: list[str] | None, given_root: str, driver: Driver, root: str
) -> None:
    layout = detect_layout(directories, arguments, None, given_root)
    assert (layout.driver, layout.root) == (driver, root)
    assert (layout == CgroupLayout(driver)) == ("/" not in root)


@pytest.mark.parametrize("uid", ["", ".", "..", "../../etc", "a/b"])
def test_a_uid_that_is_not_a_plain_name_makes_no_path(uid: str) -> None:
    with pytest.raises(InvalidInput):
        CgroupLayout(Driver.CGROUPFS).pod_directory(KubeQos.BURSTABLE, uid)


def test_a_host_application_cannot_leave_its_base() -> None:
    app = HostApplication(name="x", base="Kubepods", relative_path="../../system.slice")
    with pytest.raises(ValueError, match="below its base"):
        CgroupLayout(Driver.SYSTEMD).host_application_directory(app)


@pytest.mark.parametrize("directory", ["", "/kubepods", "kubepods/../system", "kubepodsx", "system.slice", "a//b", "."])
def test_directories_outside_the_trees_are_refused(directory: str) -> None:
    with pytest.raises(OutsideTree):
        require_inside(directory, ["kubepods", "a"])


@given(shares=st.integers(2, 262_144))
def test_shares_survive_the_way_through_v2_to_one_weight_step(shares: int) -> None:
    text = files.to_file_text("cpu.shares", str(shares), 2, WeightLine.LINEAR)
    back = int(files.from_file_text("cpu.shares", text, 2))
    assert 0 <= shares - back <= 27
    assert files.is_equal("cpu.shares", text, str(shares), 2)


@given(quota=st.one_of(st.just(-1), st.integers(1_000, 10**9)), version=st.sampled_from([1, 2]))
def test_a_written_quota_reads_back(quota: int, version: int) -> None:
    text = files.to_file_text("cpu.cfs_quota_us", str(quota), version)
    stored = text if version == 1 else f"{text} 100000"
    assert int(files.from_file_text("cpu.cfs_quota_us", stored, version)) == quota
    assert files.is_equal("cpu.cfs_quota_us", stored, str(quota), version)
    assert not files.is_equal("cpu.cfs_quota_us", stored, str(quota + 2_000), version)


@pytest.mark.parametrize("resource", sorted(files.RESOURCES))
def test_a_resource_has_a_file_on_at_least_one_version(resource: str) -> None:
    row = files.resource(resource)
    assert row.file(1) or row.file(2)
    for version in (1, 2):
        if row.file(version) is None:
            with pytest.raises(files.Unsupported):
                files.file_path("/sys/fs/cgroup", resource, "kubepods", version)
            with pytest.raises(files.Unsupported):
                files.to_file_text(resource, "1", version)


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        ("cpu.shares", "1"),
        ("cpu.cfs_quota_us", "-2"),
        ("cpu.cfs_quota_us", "1e5"),
        ("cpuset.cpus", "0-"),
        ("blkio.throttle.read_bps_device", "8:0"),
        ("net_cls.classid", "0x123456789"),
        ("memory.high", ""),
    ],
)
def test_invalid_values_name_resource_and_value(resource: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=resource.replace(".", r"\.")) as caught:
        files.validate(resource, value)
    assert repr(value) in str(caught.value)
