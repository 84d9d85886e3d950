"""What a cycle sets outside of cgroup files: OOM scores, resctrl groups of pods, files of Terway."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.gate_names import OOM_SCORE_ADJ, RESCTRL, TERWAY_QOS
from koord_agent.domain.hooks.call import ResctrlMachine
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.runner import Interval
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks import oom_scores, pod_groups
from koord_agent.shell.hooks.machine_hooks import MachineHooks
from koord_agent.shell.hooks.oom_scores import OomScores
from koord_agent.shell.hooks.pod_groups import REMOVE_AFTER_MS, PodGroupReconciler
from koord_agent.shell.hooks.terway_files import TerwayFiles
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koordcore.protocol import keys
from structlog.testing import capture_logs

DIRECTORY = "kubepods/burstable/podu1/c1"


def pod(annotations: dict[str, str]) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {
                "uid": "u1",
                "namespace": "d",
                "name": "p",
                "labels": {keys.QOS_CLASS: "LS"},
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "main"}, {"name": "waits"}]},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [{"name": "main", "containerID": "containerd://c1"}],
            },
        }
    )


def look(*pods: AgentPod, now_ms: int = 0, slo: dict[str, Any] | None = None) -> NodeLook:
    return NodeLook(
        now_ms=now_ms,
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=pods,
        slo=slo,
    )


def test_a_reconciler_that_fails_is_told_and_the_cycle_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[str]:
        raise ValueError("no JSON")

    def observe(_level: str, resource: str, /, *, is_ok: bool, seconds: float) -> None:
        assert seconds >= 0
        runs.append((resource, is_ok))

    whole = OomScores.apply
    monkeypatch.setattr(OomScores, "apply", broken)
    runs: list[tuple[str, bool]] = []
    roots = HostRoots(cgroup=tmp_path, proc=tmp_path, sys=tmp_path)
    hooks = MachineHooks(
        LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=CgroupLayout(Driver.CGROUPFS), version=1, jiffy=1),
        roots,
        AgentSettings.model_validate(
            {"feature_gates": f"{OOM_SCORE_ADJ}=true,{TERWAY_QOS}=true", "terway_qos_dir": tmp_path / "terway"}
        ),
        observe,
        Interval(5_000, 1_000),
    )
    (problem,) = hooks.apply(look())
    assert problem.startswith("oom_score_adj of each container failed: ValueError: no JSON (test_machine_hooks.py:")
    assert runs == [("oom_score_adj", False), ("terway", True)]
    monkeypatch.setattr(OomScores, "apply", whole)
    assert hooks.apply(look(now_ms=1_000)) == [problem], "it has not run again"
    assert hooks.apply(look(now_ms=5_000)) == []


def ignore(_level: str, _resource: str, /, *, is_ok: bool, seconds: float) -> None:
    """Runs of reconcilers are not recorded."""


def test_nothing_is_removed_before_the_kubelet_has_listed_its_pods(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    shutil.copytree(group, group.parent / "koordlet-gone")
    (tmp_path / "cpuinfo").write_text("vendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3 mba\n")
    mask = group.parent / "info/L3/cbm_mask"
    mask.parent.mkdir(parents=True)
    mask.write_text("3ff\n")
    (group.parent / "schemata").write_text("L3:0=3ff;1=3ff\n")
    roots = HostRoots(cgroup=tmp_path, proc=tmp_path, sys=tmp_path)
    hooks = MachineHooks(
        LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=CgroupLayout(Driver.CGROUPFS), version=1, jiffy=1),
        roots,
        AgentSettings.model_validate({"feature_gates": f"{RESCTRL}=true"}),
        ignore,
        Interval(1_000, 1_000),
    )
    for folder in (group, group.parent / "koordlet-gone"):
        for file in folder.iterdir():  # the files of a kernel directory do not keep it
            file.unlink()
    (group / "schemata").write_text("")
    for now_ms in range(0, 2 * REMOVE_AFTER_MS, 1_000):
        assert hooks.apply(replace(look(now_ms=now_ms), has_all_pods=False)) == []
    assert (group.parent / "koordlet-gone").exists()
    for now_ms in range(2 * REMOVE_AFTER_MS, 4 * REMOVE_AFTER_MS, 1_000):
        assert hooks.apply(look(pod(wanted(0, 50)), now_ms=now_ms)) == []
    assert group.exists()
    assert not (group.parent / "koordlet-gone").exists()


def test_a_score_that_the_kernel_refuses_is_one_problem_for_each_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(oom_scores, "put", refuse)
    for process in ("10", "11"):
        (tmp_path / process).mkdir()
        (tmp_path / process / "oom_score_adj").write_text("0")
    files = {CgroupFile(DIRECTORY, "cgroup.procs"): "10\n"}
    scores = OomScores(tmp_path, files.get)
    first = scores.apply(look(pod({keys.OOM_SCORE_ADJ: "-500"})))
    assert first == ["container d/p/main: oom_score_adj of its processes is not set: Permission denied"]
    files[CgroupFile(DIRECTORY, "cgroup.procs")] = "10\n11\n"
    assert scores.apply(look(pod({keys.OOM_SCORE_ADJ: "-500"}))) == first


def test_threads_that_cannot_be_moved_are_one_problem_for_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: str) -> None:
        if path.name == "tasks":
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(pod_groups, "put", refuse)
    group_in(tmp_path)
    machine = ResctrlMachine(cbm_mask="3ff", cache_ids=(0, 1), vendor="GenuineIntel")
    groups = PodGroupReconciler(HostRoots(sys=tmp_path), machine, lambda _look, _pod: [12, 13])
    problems = groups.apply(look(pod(wanted(0, 50))))
    assert problems == ["resctrl group koordlet-u1: threads are not moved: Invalid argument"]


def test_a_machine_without_a_free_group_is_one_problem_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "fs/resctrl").mkdir(parents=True)
    machine = ResctrlMachine(cbm_mask="3ff", cache_ids=(0, 1), vendor="GenuineIntel")
    groups = PodGroupReconciler(HostRoots(sys=tmp_path), machine, None)
    with monkeypatch.context() as patched, capture_logs() as lines:
        patched.setattr(Path, "mkdir", full)
        told = [groups.apply(look(pod(wanted(0, 50)), now_ms=now_ms)) for now_ms in (0, 1_000)]
    assert told == [["pod d/p: its resctrl group is not set: the machine has no free group"]] * 2
    assert lines == []


def test_nothing_is_remembered_of_a_pod_whose_group_the_runtime_removed(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    machine = ResctrlMachine(cbm_mask="3ff", cache_ids=(0, 1), vendor="GenuineIntel")
    groups = PodGroupReconciler(HostRoots(sys=tmp_path), machine, None)
    assert groups.apply(look(pod(wanted(0, 50)))) == []
    shutil.rmtree(group)
    assert groups.apply(look()) == []
    group_in(tmp_path, "L3:0=3ff;1=3ff;\n")
    assert groups.apply(look(pod(wanted(0, 50)))) == []
    assert (group / "schemata").read_text() == "L3:0=1f;1=1f;\n", "what was written to the old group does not count"


def test_every_process_of_the_container_gets_the_score_of_the_annotation(tmp_path: Path) -> None:
    for process, score in (("10", "0"), ("11", "-500"), ("12", "7")):
        (tmp_path / process).mkdir()
        (tmp_path / process / "oom_score_adj").write_text(score)
    files = {CgroupFile(DIRECTORY, "cgroup.procs"): "10\n11\n999\nnot a number\n"}
    scores = OomScores(tmp_path, files.get)
    assert scores.apply(look(pod({keys.OOM_SCORE_ADJ: "-500"}))) == []
    assert [(tmp_path / each / "oom_score_adj").read_text() for each in ("10", "11", "12")] == ["-500", "-500", "7"]
    (gauge,) = scores.gauges()
    assert (gauge.name, gauge.labels["pod_name"], gauge.labels["container_name"], gauge.value) == (
        "container_oom_score_adj",
        "p",
        "main",
        -500,
    )
    assert scores.apply(look(pod({keys.OOM_SCORE_ADJ_SPEC: '{"waits":1}'}))) == []
    assert list(scores.gauges()) == []
    assert scores.apply(look(pod({keys.OOM_SCORE_ADJ: "2000"}))) == []
    assert (tmp_path / "10" / "oom_score_adj").read_text() == "-500"


def test_files_of_terway_are_written_when_they_change_and_removed_with_the_policy(tmp_path: Path) -> None:
    folder = tmp_path / "qos"
    files = TerwayFiles(folder)
    slo: dict[str, Any] = {
        "resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}},
        "systemStrategy": {"totalNetworkBandwidth": "80M"},
    }
    assert files.apply(look(pod({}), slo=slo)) == []
    assert (folder / "global_bps_config").read_text().startswith("hw_tx_bps_max 10000000\n")
    (of_pod,) = json.loads((folder / "pod.json").read_text()).values()
    assert (of_pod["prio"], of_pod["cgroupDir"]) == (1, "/sys/fs/cgroup/net_cls/kubepods/burstable/podu1")
    bad = {**slo, "systemStrategy": {"totalNetworkBandwidth": "-1"}}
    (problem,) = files.apply(look(slo=bad))
    assert "stay as they were" in problem
    assert (folder / "pod.json").exists()
    assert files.apply(look(slo={})) == []
    assert list(folder.iterdir()) == []


def group_in(folder: Path, text: str = "") -> Path:
    group = folder / "fs/resctrl/koordlet-u1"
    group.mkdir(parents=True, exist_ok=True)
    (group / "schemata").write_text(text)
    (group / "tasks").write_text("11\n")
    return group


def wanted(start: int, end: int) -> dict[str, str]:
    return {keys.RESCTRL: json.dumps({"llc": {"schemata": {"range": [start, end]}}})}


def test_group_of_a_pod_follows_its_annotation_and_goes_ten_seconds_after_the_pod(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    machine = ResctrlMachine(cbm_mask="3ff", cache_ids=(0, 1), vendor="GenuineIntel")
    moved: list[int] = [11, 12]
    groups = PodGroupReconciler(HostRoots(sys=tmp_path), machine, lambda _look, _pod: moved)
    assert groups.apply(look(pod(wanted(0, 50)))) == []
    assert (group / "schemata").read_text() == "L3:0=1f;1=1f;\n"
    assert (group / "tasks").read_text() == "12", "each thread is a write of its own; 11 was there"
    (group / "schemata").write_text("changed by somebody else")
    assert groups.apply(look(pod(wanted(0, 50)))) == []
    assert (group / "schemata").read_text() == "changed by somebody else", "nothing changed here"
    assert groups.apply(look(pod(wanted(0, 100)))) == []
    assert (group / "schemata").read_text() == "L3:0=3ff;1=3ff;\n"
    (problem,) = groups.apply(look(pod({keys.RESCTRL: "{"})))
    assert "pod d/p: its resctrl group is not set" in problem
    for file in group.iterdir():  # the files of a kernel directory do not keep it
        file.unlink()
    groups.apply(look(now_ms=0))
    groups.apply(look(now_ms=REMOVE_AFTER_MS - 1))
    assert group.is_dir()
    groups.apply(look(now_ms=REMOVE_AFTER_MS))
    assert not group.exists()
