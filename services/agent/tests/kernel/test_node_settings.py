"""Kernel parameters and resctrl groups on a tree of files: only differences are written, threads go to their group."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.gate_names import RDT_RESCTRL, SYSTEM_CONFIG
from koord_agent.domain.hooks.resctrl import pod_schemata
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import agent_pod_of_ledger
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.domain.strategies.runner import Interval
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks.pod_groups import resctrl_machine
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.machine_settings import MachineSettings, NodeSettings
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol.config.node_slo import complete_node_slo

GIB = 1 << 30
CPUINFO = "vendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3 mba\n"


class Machine:
    """proc and sys as files, and what was audited."""

    def __init__(self, folder: Path) -> None:
        self.roots = HostRoots(proc=folder / "proc", sys=folder / "sys")
        self.audited: list[AuditEvent] = []
        self.resctrl = self.roots.sys / "fs/resctrl"
        self.write("proc/cpuinfo", CPUINFO)
        self.write("proc/sys/vm/min_free_kbytes", "67584\n")
        self.write("sys/kernel/debug/sched_features", "GENTLE_FAIR_SLEEPERS NO_CORE_SCHED\n")
        self.write("sys/fs/resctrl/info/L3/cbm_mask", "7ff\n")
        self.write("sys/fs/resctrl/schemata", "    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
        for group in ("LSR", "LS", "BE"):
            self.write(f"sys/fs/resctrl/{group}/schemata", "L3:0=7ff;1=7ff\nMB:0=100;1=100\n")
            self.write(f"sys/fs/resctrl/{group}/tasks", "")
        self.settings = NodeSettings(
            self.roots,
            audit=lambda event, verbosity: self.audited.append(event),
            read_tasks=lambda file: (
                "11\n12\n" if file == CgroupFile("kubepods/besteffort/podcrunch", "tasks") else None
            ),
        )

    def write(self, path: str, text: str) -> None:
        tree, _, rest = path.partition("/")
        file = (self.roots.proc if tree == "proc" else self.roots.sys) / rest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_settings_that_fail_leave_the_others_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[str]:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(NodeSettings, "apply_system", broken)
    settings = MachineSettings(
        LinuxHost(
            monotonic_ns=lambda: 0, roots=machine.roots, layout=CgroupLayout(Driver.CGROUPFS), version=2, jiffy=1
        ),
        machine.roots,
        AgentSettings.model_validate({"feature_gates": f"{SYSTEM_CONFIG}=true,{RDT_RESCTRL}=true"}),
        lambda event, verbosity: machine.audited.append(event),
        Interval(1_000, 1_000),
    )
    strategy: dict[str, Any] = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30}}}
    slo = complete_node_slo({"resourceQOSStrategy": strategy})
    (problem,) = settings.apply(replace(look(), slo=slo))
    assert problem.startswith("kernel parameters failed: KeyError: 'what nobody thought of' (test_node_settings.py:")
    assert (machine.resctrl / "BE/schemata").read_text() == "L3:0=f;1=f;\n"


def look() -> NodeLook:
    pod = PodOnNode(
        uid="crunch", namespace="d", name="crunch", qos="BE", kube_qos="BestEffort", priority_class="koord-batch",
        requests={},
    )  # fmt: skip
    return NodeLook(
        now_ms=0,
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=(agent_pod_of_ledger(pod),),
        capacity={"memory": 512 * GIB},
    )


def test_only_parameters_that_differ_are_written_and_absent_files_are_skipped(machine: Machine) -> None:
    section = {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150, "schedFeatures": {"CORE_SCHED": True}}
    assert machine.settings.apply_system(look(), section) == []
    assert (machine.roots.proc / "sys/vm/min_free_kbytes").read_text() == "5368709"
    assert not (machine.roots.proc / "sys/vm/watermark_scale_factor").exists()
    assert (machine.roots.sys / "kernel/debug/sched_features").read_text() == "CORE_SCHED"
    assert [(event.name, event.old_value, event.new_value) for event in machine.audited] == [
        ("min_free_kbytes", "67584", "5368709"),
        ("sched_features", "", "CORE_SCHED"),
    ]
    machine.audited.clear()
    machine.settings.apply_system(look(), section)
    assert machine.audited == [], "nothing differs any more"


def test_a_class_gets_its_cache_ways_and_its_threads_their_group(machine: Machine) -> None:
    strategy: dict[str, Any] = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30, "mbaPercent": 25}}}
    section = complete_node_slo({"resourceQOSStrategy": strategy})["resourceQOSStrategy"]
    assert isinstance(section, dict)
    assert machine.settings.apply_resctrl(look(), section) == []
    # a plain file keeps the last write only: the kernel takes each line for itself
    assert (machine.resctrl / "BE/schemata").read_text() == "MB:0=30;1=30;\n"
    assert (machine.resctrl / "LS/schemata").read_text().startswith("L3:0=7ff")
    assert (machine.resctrl / "BE/tasks").read_text() == "12", "one write per thread"
    written = [event.new_value for event in machine.audited if event.reason == "UpdateResctrl"]
    assert written == ["L3:0=f;1=f;", "MB:0=30;1=30;"]


def test_a_cpu_without_the_feature_is_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("proc/cpuinfo", "vendor_id\t: Other\nflags\t\t: fpu\n")
    settings = NodeSettings(machine.roots, audit=lambda event, verbosity: None, read_tasks=lambda file: None)
    strategy = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30}}}
    assert settings.apply_resctrl(look(), strategy) == []
    assert (machine.resctrl / "BE/schemata").read_text().startswith("L3:0=7ff")


MOUNT = "60 30 0:50 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw"


@pytest.mark.parametrize(("options", "is_left_alone"), [("", False), (",cdp", False), (",mba_MBps", True)])
def test_bandwidth_in_megabytes_is_left_alone_and_told(machine: Machine, options: str, is_left_alone: bool) -> None:
    """In percent, 100 means all; with mba_MBps it would mean 100 MB/s for latency-sensitive pods, too."""
    machine.write("proc/1/mountinfo", f"22 27 0:21 / /proc rw - proc proc rw\n{MOUNT}{options}\n")
    strategy: dict[str, Any] = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30, "mbaPercent": 25}}}
    section = complete_node_slo({"resourceQOSStrategy": strategy})["resourceQOSStrategy"]
    assert isinstance(section, dict)
    problems = machine.settings.apply_resctrl(look(), section)
    written = [event.new_value for event in machine.audited if event.reason == "UpdateResctrl"]
    assert written == ["L3:0=f;1=f;", *(() if is_left_alone else ("MB:0=30;1=30;",))]
    assert [problem.startswith("resctrl: mbaPercent is not applied") for problem in problems] == [True] * is_left_alone
    of_pods = resctrl_machine(machine.roots)
    assert of_pods is not None
    text = '{"mb":{"schemata":{"percent":20}}}'
    schemata = pod_schemata(text, cbm_mask=of_pods.cbm_mask, cache_ids=of_pods.cache_ids, vendor=of_pods.vendor)
    assert schemata == ("" if is_left_alone else "MB:0=20;1=20;\n")


def test_classes_that_may_use_all_bandwidth_are_no_problem(machine: Machine) -> None:
    machine.write("proc/1/mountinfo", f"{MOUNT},mba_MBps\n")
    strategy: dict[str, Any] = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30}}}
    section = complete_node_slo({"resourceQOSStrategy": strategy})["resourceQOSStrategy"]
    assert isinstance(section, dict)
    assert machine.settings.apply_resctrl(look(), section) == []
    assert (machine.resctrl / "BE/schemata").read_text() == "L3:0=f;1=f;\n"
