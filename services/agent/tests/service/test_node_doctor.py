"""The examination of a machine: every feature, usable or why not, from trees that look like machines."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koord_agent.doctor import Examination
from koord_agent.domain.kernel.cgroup_files import RESOURCES
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.features import Feature, Features, Finding
from koord_agent.domain.kernel.protections import PROTECTIONS, State, verdicts
from koord_agent.gates import GATES
from koord_agent.shell.host.linux_features import find_features
from koord_agent.shell.host.probe import HostRoots, cgroup_layout
from koord_agent.shell.host.resctrl_mount import run_mount
from koordcore.values import codec
from support.until import DEADLINE_SECONDS

CPUINFO = "vendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3 mba\n"


def machine(folder: Path, version: int) -> HostRoots:
    """A machine with one knob, PSI on v2 only, and a CPU that divides its cache but does not monitor it."""
    roots = HostRoots(
        cgroup=folder / "cgroup",
        proc=folder / "proc",
        sys=folder / "sys",
        sockets=(folder / "run",),
        kubelet=folder / "kubelet",
    )
    kubepods = roots.cgroup / ("cpu/kubepods" if version == 1 else "kubepods")
    for path, text in (
        (roots.proc / "stat", "cpu 1 1 1 1 1 1 1\n"),
        (roots.proc / "cpuinfo", CPUINFO),
        (kubepods / "cpu.idle", "0\n"),
        (roots.sys / "fs/resctrl/info/L3/cbm_mask", "7ff\n"),
        *(((kubepods / "cpu.pressure", ""),) if version == 2 else ()),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return roots


def findings(folder: Path, version: int) -> dict[str, Finding]:
    """What is found, by feature."""
    found = find_features(machine(folder, version), version, CgroupLayout(Driver.CGROUPFS)).findings
    return {finding.feature: finding for finding in found}


def test_every_feature_and_every_knob_is_answered_for_with_a_file_or_a_reason(tmp_path: Path) -> None:
    for version in (1, 2):
        found = findings(tmp_path / str(version), version)
        assert set(found) == {*Feature, *RESOURCES}
        assert all(finding.usable != bool(finding.why) for finding in found.values())
        assert all(finding.file or "not on cgroup" in finding.why for finding in found.values())


def test_what_is_there_is_usable_and_what_is_not_says_why(tmp_path: Path) -> None:
    v1, v2 = findings(tmp_path / "1", 1), findings(tmp_path / "2", 2)
    assert v1["cpu.idle"].usable
    assert v2["cpu.idle"].usable
    assert v1["memory.high"].why == "the hierarchy memory is not mounted"
    assert v2["memory.idle_page_stats"].why == "resource memory.idle_page_stats: not on cgroup v2"
    assert v2["blkio.cost.weight"].file.endswith("/kubepods/io.weight")
    assert v2["blkio.cost.qos"].file.endswith("/cgroup/io.cost.qos")
    assert "only extended v1 kernels" in v1[Feature.PSI].why
    assert v2[Feature.PSI].usable
    assert v1[Feature.RESCTRL_CONTROL].usable
    assert v1[Feature.RESCTRL_MONITOR].why == "the CPU does not have it"
    assert not v1[Feature.NODE_COUNTERS].why


def may_write_all(_path: str) -> bool:
    return True


def may_write_no_idle(path: str) -> bool:
    return "cpu.idle" not in path


def states(folder: Path, version: int, **options: Any) -> dict[str, tuple[State, str]]:
    """State and reason by protection, with the default gates and a file system that may be written."""
    found = Features(tuple(findings(folder, version).values()))
    gates_on = options.get("gates_on", [gate.name for gate in GATES if gate.default])
    judged = verdicts(found, gates_on, options.get("may_write", may_write_all))
    return {one.protection.name: (one.state, one.why) for one in judged}


def test_a_protection_is_available_switched_off_refused_or_absent(tmp_path: Path) -> None:
    v1 = states(tmp_path / "1", 1)
    assert v1["precedence on a CPU"] == (State.AVAILABLE, ""), "by cpu.idle, without the kernel of a vendor"
    assert v1["cache ways and memory bandwidth"] == (State.AVAILABLE, "")
    state, why = v1["throttled memory"]
    assert (state, why) == (State.ABSENT, "memory.high: the hierarchy memory is not mounted")
    v2 = states(tmp_path / "2", 2)
    assert v2["interference: pressure (PSI)"] == (State.GATE_OFF, "--feature-gates=PSICollector=true")
    assert states(tmp_path / "3", 2, gates_on=["PSICollector"])["interference: pressure (PSI)"][0] is State.AVAILABLE
    refused = states(tmp_path / "4", 1, may_write=may_write_no_idle)
    assert refused["precedence on a CPU"][0] is State.REFUSED
    assert refused["precedence on a CPU"][1].endswith("kubepods/cpu.idle: not writable")


def test_each_protection_has_a_row_in_the_documentation_and_needs_what_is_probed() -> None:
    page = (Path(__file__).parents[4] / "docs" / "node-agent.md").read_text()
    rows = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("|")}
    assert {one.name for one in PROTECTIONS} <= rows
    needed = {name for one in PROTECTIONS for need in one.needs for name in ([need] if isinstance(need, str) else need)}
    assert needed <= {*Feature, *RESOURCES}
    assert {one.gate for one in PROTECTIONS} <= {gate.name for gate in GATES}


@pytest.mark.deep
def test_the_command_examines_this_machine_and_starts_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koord_agent", "doctor"],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    found = codec.decode(done.stdout, Examination)
    usable = {finding["feature"] for finding in found.findings if finding["usable"]}
    assert Feature.NODE_COUNTERS.value in usable
    assert found.cgroup_version in (1, 2)
    assert [one["protection"] for one in found.protections] == [one.name for one in PROTECTIONS]
    assert {one["state"] for one in found.protections} <= {state.value for state in State}
    wrong = subprocess.run(
        [sys.executable, "-m", "koord_agent", "doctor", f"--cgroup-root={tmp_path / 'none'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert wrong.returncode == 1
    assert len(wrong.stderr.strip().splitlines()) == 1


def kubelet_process(folder: Path, *arguments: str, configuration: str = "") -> Path:
    """A /proc with a kubelet in it, whose configuration file is relative to where it runs."""
    process = folder / "proc" / "42"
    (process / "cwd").mkdir(parents=True)
    (process / "comm").write_text("kubelet\n")
    (process / "cmdline").write_bytes(b"\0".join(word.encode() for word in ("/usr/bin/kubelet", *arguments)) + b"\0")
    (process / "cwd" / "kubelet.yaml").write_text(configuration)
    return folder / "proc"


def test_without_pods_the_kubelet_says_how_directories_are_named(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    cases = (
        ("flag", ("--cgroup-driver=cgroupfs",), "", Driver.CGROUPFS),
        ("file", ("--config", "kubelet.yaml"), "cgroupDriver: systemd\n", Driver.SYSTEMD),
        ("default", ("--config=kubelet.yaml",), "port: 10250\n", Driver.CGROUPFS),
        ("bare", (), "", Driver.CGROUPFS),
    )
    for name, arguments, configuration, driver in cases:
        proc = kubelet_process(tmp_path / name, *arguments, configuration=configuration)
        assert cgroup_layout(root, 2, proc).driver is driver, name
    assert cgroup_layout(root, 2, tmp_path / "nothing").driver is Driver.SYSTEMD


def test_a_kubelet_below_a_cgroup_root_of_its_own_is_found(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    (root / "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice").mkdir(parents=True)
    (root / "system.slice/ssh.service").mkdir(parents=True)
    assert cgroup_layout(root, 2, tmp_path / "nothing").root == "kubelet.slice/kubelet-kubepods.slice"
    (root / "a/b/kubepods").mkdir(parents=True)
    proc = kubelet_process(tmp_path / "file", "--config=kubelet.yaml", configuration="cgroupRoot: /a/b\n")
    assert cgroup_layout(root, 2, proc).root == "a/b/kubepods"
    assert cgroup_layout(root, 2, proc, "/kubelet").root == "kubelet.slice/kubelet-kubepods.slice"


def test_a_kubelet_whose_root_is_closed_is_read_in_its_own_folder(tmp_path: Path) -> None:
    """As for an agent without the capability SYS_PTRACE."""
    root, folder = tmp_path / "cgroup", tmp_path / "kubelet"
    for directory in (root / "a/b/kubepods", folder):
        directory.mkdir(parents=True)
    (folder / "config.yaml").write_text("cgroupRoot: /a/b\n")
    proc = kubelet_process(tmp_path, f"--config={folder}/config.yaml")
    assert cgroup_layout(root, 2, proc, kubelet=folder).root == "a/b/kubepods"
    assert cgroup_layout(root, 2, proc).root == "kubepods.slice", "no other file of the machine is read"


def test_resctrl_is_mounted_before_the_agent_where_the_machine_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is no mount point of the kernel stands for a machine whose CPU cannot divide caches."""
    words = [f"--sys-fs-root-dir={tmp_path}"]
    assert run_mount(words) == 0
    (tmp_path / "resctrl/info/L3").mkdir(parents=True)
    (tmp_path / "resctrl/info/L3/cbm_mask").write_text("fff\n")
    assert run_mount(words) == 0
    assert run_mount(["--no-such-flag"]) == 2
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        f"this machine has no resctrl: {tmp_path}/resctrl",
        f"resctrl is mounted: {tmp_path}/resctrl",
    ]
    assert "--no-such-flag" in said.err


def test_a_missing_root_of_the_pods_and_an_unusual_runtime_name_the_settings_for_them(tmp_path: Path) -> None:
    roots = machine(tmp_path, 2)
    found = {each.feature: each for each in find_features(roots, 2, CgroupLayout(Driver.CGROUPFS)).findings}
    assert "--kubelet-cgroup-root" in found[Feature.POD_EVENTS].why
    assert "--containerd-endpoint" in found[Feature.CONTAINER_RUNTIME].why
    with socket.socket(socket.AF_UNIX) as runtime:
        runtime.bind(str(tmp_path / "k3s.sock"))
        given = replace(roots, endpoints=(tmp_path / "k3s.sock",))
        found = {each.feature: each for each in find_features(given, 2, CgroupLayout(Driver.CGROUPFS)).findings}
    assert found[Feature.CONTAINER_RUNTIME].usable


def test_the_command_in_the_container_of_an_agent_looks_where_the_machine_is_mounted(tmp_path: Path) -> None:
    """Without the paths of the DaemonSet, it would find the cgroups of its own container."""
    command = [sys.executable, "-m", "koordctl", "node", "doctor", "-o", "json"]
    there = {**os.environ, "agent_mode": "daemonSet"}
    inside = subprocess.run(command, capture_output=True, text=True, env=there, check=False, timeout=DEADLINE_SECONDS)
    assert inside.returncode == 1
    assert "/host-cgroup" in inside.stderr
    here = [*command, f"--cgroup-root={tmp_path}", "--", f"--containerd-endpoint={tmp_path / 'c.sock'}"]
    given = subprocess.run(here, capture_output=True, text=True, env=there, check=False, timeout=DEADLINE_SECONDS)
    assert given.returncode == 0, given.stderr
    assert str(tmp_path / "c.sock") in given.stdout
