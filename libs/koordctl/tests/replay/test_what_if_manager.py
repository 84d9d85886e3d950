"""A manager that was told other plugins and another ConfigMap is explained by the same flags, and not without them."""

from typing import Any

import pytest
from koord_manager.cycle import run_cycle
from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.controller_names import AMPLIFICATION, CONTROLLERS, NODE_METRIC, PLUGINS
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.settings import ManagerSettings
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog, MemoryObservationLog
from koordctl.app import app
from koordctl.replay.manager import ManagerFlags
from koordctl.replay.manager_rerun import Question, compare
from koordctl.replay.nodes import NodeComparison
from support.manager.loops import CONFIG, NODE, Manager, running
from typer.main import get_command
from typer.testing import CliRunner

COMMANDS: Any = get_command(app)
FLAGS = {
    "controllers": "*,-nodemetric",
    "noderesource_plugins": "*,-ResourceAmplification",
    "feature_gates": "EnableSyncGPUSharedResource=true",
    "config_namespace": "team",
    "slo_config_name": "nodes",
}
DEVICE = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: n.1}
spec: {devices: [{type: gpu, minor: 0, health: true, resources: {koordinator.sh/gpu-core: 100}}]}
"""
DEFAULTS = {
    "controllers": ",".join(CONTROLLERS),
    "feature_gates": "",
    "noderesource_plugins": ",".join(PLUGINS),
    "config_namespace": "koordinator-system",
    "slo_config_name": "slo-controller-config",
}


async def recorded() -> MemoryLog:
    """The log of a manager with `FLAGS` and a configuration that amplifies, which its plugins leave out."""
    log = MemoryLog()
    manager = Manager(log, config_names=ConfigNames(slo_namespace="team", slo_name="nodes"))
    manager.policies.enabled = frozenset(CONTROLLERS) - {NODE_METRIC}
    manager.policies.policies = NodePolicies(plugins=frozenset(PLUGINS) - {AMPLIFICATION}, sync_shared_gpus=True)
    config = CONFIG.replace("slo-controller-config, namespace: koordinator-system", "nodes, namespace: team")
    ratio = """  resource-amplification-config: '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}'\n"""
    async with running(manager):
        await manager.apply("\n---\n".join([config + ratio, NODE, DEVICE]))
        await run_cycle(manager.context, manager.policies)
    return log


async def again(log: MemoryLog, options: dict[str, str], chosen: dict[str, str] | None = None) -> NodeComparison:
    flags = ManagerFlags(
        controllers=options["controllers"],
        plugins=options["noderesource_plugins"],
        gates=options["feature_gates"],
        config_namespace=options["config_namespace"],
        slo_config_name=options["slo_config_name"],
    )
    events, reports = MemoryEventLog(log), MemoryObservationLog()
    recorded_flags, names = flags.recorded_flags, flags.names
    asked = Question(begin=0, end=log.last_seq, chosen=chosen, names=names, flags=recorded_flags)
    return (await compare(events, reports, None, asked, lambda _: None)).nodes


async def explains(log: MemoryLog, options: dict[str, str]) -> bool:
    found = await again(log, options)
    assert found.tally.recorded > 0
    return found.tally.explained and found.fates == []


async def test_the_managers_flags_explain_what_it_recorded() -> None:
    log = await recorded()
    assert await explains(log, FLAGS)
    for name in FLAGS.keys() - {"controllers"}:
        assert not await explains(log, {**FLAGS, name: DEFAULTS[name]}), name
    for name in ("noderesource", "nodeslo"):
        assert not await explains(log, {**FLAGS, "controllers": f"*,-nodemetric,-{name}"}), name


async def test_what_a_controller_decides_that_did_not_run_is_not_decided_here_either() -> None:
    chosen = {"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 7}'}
    log = await recorded()
    [fate] = (await again(log, DEFAULTS | {"config_namespace": "team", "slo_config_name": "nodes"}, chosen)).fates
    assert fate.rerun is not None
    assert fate.rerun.metric_policy is not None
    assert fate.rerun.metric_policy["reportIntervalSeconds"] == 7
    fates = (await again(log, FLAGS, chosen)).fates
    assert all(fate.rerun is not None and fate.rerun.metric_policy is None for fate in fates)


def test_a_gate_that_the_manager_does_not_know_is_refused() -> None:
    answer = CliRunner().invoke(app, ["replay", "--rerun-manager", "--feature-gates", "NoSuchGate=true"])
    assert (answer.exit_code, "NoSuchGate" in answer.output) == (2, True)


@pytest.mark.parametrize("name", FLAGS)
def test_the_options_are_the_managers_with_its_defaults(name: str) -> None:
    replay: Any = COMMANDS.commands["replay"]
    [option] = [one for one in replay.params if one.name == name]
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert option.default == DEFAULTS[name]
    as_given = ManagerSettings.load([option.opts[0], DEFAULTS[name]], {}) if DEFAULTS[name] else None
    if as_given is not None:
        assert getattr(as_given, name) == getattr(ManagerSettings.load([], {}), name)
    ManagerSettings.load([option.opts[0], FLAGS[name]], {})


@pytest.mark.parametrize("name", FLAGS)
def test_the_managers_flags_are_refused_where_it_is_not_rerun(name: str) -> None:
    answer = CliRunner().invoke(app, ["replay", f"--{name.replace('_', '-')}", FLAGS[name]])
    assert answer.exit_code == 2
