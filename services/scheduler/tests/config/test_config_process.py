"""The configuration where it meets the outside: flags, files, installed packages, the command."""

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest
import yaml
from koord_scheduler.configuration import installed_plugins, known_plugins, load_configuration
from koord_scheduler.domain.config.catalogue import BUILT_IN
from koord_scheduler.domain.config.effective import IDLE_ARGUMENTS, NOT_ACTED_ON
from koord_scheduler.domain.framework.gates import SchedulerGates, gate_defaults
from koord_scheduler.domain.framework.plugin import Point
from koord_scheduler.settings import SchedulerSettings
from koordcore.protocol.component_config import WireModel, wire_name
from koordcore.service.settings import InvalidSettings
from koordcore.values.invalid import InvalidInput
from koordctl.__main__ import run
from koordctl.app import app

OFFERED = """
from koord_scheduler.domain.config.catalogue import KnownPlugin
from koord_scheduler.domain.framework.plugin import Point

class Plugin:
    def __init__(self, name):
        self.known = KnownPlugin(name=name, points=frozenset((Point.SCORE,)))

mine, again, taken, other = Plugin("Mine"), Plugin("Mine"), Plugin("NodeName"), object()
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A package that offers some of the objects above under the group of entry points."""
    (folder / "offered_plugins.py").write_text(OFFERED)
    info = folder / "offered_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered-plugins\nVersion: 1.0\n")
    lines = [f"{name} = offered_plugins:{name}" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[koord_scheduler.plugins]", *lines]))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "offered_plugins", raising=False)


def test_packages_offer_plugins_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_plugins() == {}
    install(tmp_path, monkeypatch, "mine")
    assert list(installed_plugins()) == ["Mine"]
    assert known_plugins()["Mine"].points == {Point.SCORE}


@pytest.mark.parametrize(
    ("names", "part"), [(["other"], "known"), (["taken"], "NodeName"), (["mine", "again"], "Mine")]
)
def test_a_wrong_offer_is_refused(names: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, *names)
    with pytest.raises(InvalidInput) as refused:
        known_plugins()
    assert part in str(refused.value)


def test_a_file_is_loaded_as_the_shipped_one_is(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(load_configuration(None).as_json()))
    assert load_configuration(file).profiles == load_configuration(None).profiles


def test_gates_have_the_defaults_of_the_specification_and_follow_the_flag() -> None:
    on = {"DynamicSchedulerCheck", "GangPendingPodsConditionPatch", "EnableBatchScheduleNodeSnapshot"}
    assert {name for name, default in gate_defaults().items() if default} == on
    assert len(gate_defaults()) == 28
    assert SchedulerSettings.load([], {}).gates() == SchedulerGates()
    words = ["--feature-gates=ResizePod=true,CompatibleCSIStorageCapacity=t,DynamicSchedulerCheck=false"]
    chosen = SchedulerSettings.load([*words, "--config=/config/koord-scheduler.config"], {})
    assert chosen.config == Path("/config/koord-scheduler.config")
    assert chosen.gates() == SchedulerGates(
        resize_pod=True, compatible_csi_storage_capacity=True, dynamic_scheduler_check=False
    )
    with pytest.raises(InvalidSettings, match="NoSuchGate"):
        SchedulerSettings.load(["--feature-gates=NoSuchGate=true"], {})


def koord(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["koord", "scheduler", "check-config", *words])
    return run(app)


def test_check_config_prints_what_runs_and_says_what_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 4}
    file.write_text(yaml.safe_dump(document))
    assert koord(monkeypatch, str(file)) == 0
    said = capsys.readouterr().out
    assert said.startswith("# ignored: parallelism: ")
    assert yaml.safe_load(said)["profiles"][0]["schedulerName"] == "default-scheduler"


def test_check_config_tells_every_problem_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 0}
    file.write_text(yaml.safe_dump({**document, "podInitialBackoffSeconds": 11}))
    assert koord(monkeypatch, str(file)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"error: {file}: parallelism: must be an integer of at least 1, got 0",
        f"error: {file}: podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (11), got 10",
    ]
    file.write_text("profiles:\n- plugins: [\n")
    assert koord(monkeypatch, str(file)) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: line 3, column 1: must be YAML or JSON (")
    assert koord(monkeypatch, str(tmp_path / "none.yaml")) == 2
    (tmp_path / "text").write_bytes(b"\xff")
    assert koord(monkeypatch, str(tmp_path / "text")) == 2


def test_the_document_names_everything_that_changes_nothing() -> None:
    text = (Path(__file__).parents[4] / "docs" / "scheduler-configuration.md").read_text()
    for field, why in NOT_ACTED_ON.items():
        assert f"`{field}`" in text
        assert why.split(" (--")[0] in text
    for (plugin, attribute), why in IDLE_ARGUMENTS.items():
        line = next(line for line in text.splitlines() if f"`{wire_name(attribute)}`" in line)
        assert plugin in line
        assert why in line


def test_each_argument_is_read_somewhere_or_reported_as_without_effect() -> None:
    sources = Path(str(files("koord_scheduler"))).rglob("*.py")
    read = {name for source in sources for name in re.findall(r"\.(\w+)", source.read_text())}

    def unread(kind: type[WireModel]) -> Iterator[str]:
        for name, field in kind.model_fields.items():
            if name in read:
                yield from (inner for model in models_in(field.annotation) for inner in unread(model))
            else:
                yield name

    def models_in(annotation: object) -> Iterator[type[WireModel]]:
        if isinstance(annotation, type) and issubclass(annotation, WireModel):
            yield annotation
        for part in get_args(annotation):
            yield from models_in(part)

    plugins = {name: known.args for name, known in BUILT_IN.items() if known.args is not None}
    found = {(plugin, name) for plugin, kind in plugins.items() for name in unread(kind)}
    assert found, "some have no effect"
    assert found <= IDLE_ARGUMENTS.keys()


def test_flags_of_koord_scheduler_are_accepted_by_their_names() -> None:
    words = """--address=0.0.0.0 --port=10251 --scheduler-monitor-period=10s --scheduling-timeout=30s --debug-scores=3
        --scheduling-drop-unhandled-timeout=5s --debug-filters --debug-diagnosis --debug-diagnosis-blocking
        --debug-diagnosis-queue-size=10 --debug-diagnosis-worker-count=2 --controller-plugins=*,-ElasticQuota
        --enable-network-topology-manager --sync-barrier-pod-namespace=kube-system --sync-barrier-pod-name=barrier
        --sync-hard-timeout=1m --enable-workload-auditor --workload-auditor-metric-labels=app=app
        --workload-auditor-victim-reschedule-duration=1m --workload-auditor-victim-deletion-duration=1m
        --workload-auditor-victim-deleting-retries=3 --workload-auditor-scheduling-event-interval=1m
        --async-log --async-log-queue-length=1000 --pod-max-in-unschedulable-pods-duration=5m"""
    settings = SchedulerSettings.load(words.split(), {})
    assert settings.plain_addresses == [("0.0.0.0", 10251)]
    assert settings.debug_scores == 3
    assert settings.controller_plugins == ("*", "-ElasticQuota")
    text = (Path(__file__).parents[4] / "docs" / "scheduler-configuration.md").read_text()
    for spec in settings.given_idle_flags:
        assert f"`--{spec.names[0]}`" in text
        assert spec.no_effect in text
