"""A manager that was told other plugins and another ConfigMap is explained by the same flags, and not without them."""

from typing import Any

import pytest
from koord_manager.cycle import control_round
from koord_manager.domain.admission.facts import ConfigNames
from koord_manager.domain.colocation import NodePolicies
from koord_manager.domain.enabled import AMPLIFICATION, PLUGINS
from koord_manager.settings import ManagerSettings
from koordcore.bus.memory import MemoryEventLog, MemoryLog, MemoryObservationLog
from koordctl.app import app
from koordctl.commands.rerun_manager import ManagerFlags
from koordctl.rerun_nodes import compare_nodes
from manager_loops import CONFIG, NODE, Manager, running
from typer.main import get_command
from typer.testing import CliRunner

COMMANDS: Any = get_command(app)
FLAGS = {"noderesource_plugins": "*,-ResourceAmplification", "config_namespace": "team", "slo_config_name": "nodes"}
DEFAULTS = {
    "noderesource_plugins": ",".join(PLUGINS),
    "config_namespace": "koordinator-system",
    "slo_config_name": "slo-controller-config",
}


async def recorded() -> MemoryLog:
    """The log of a manager with `FLAGS` and a configuration that amplifies, which its plugins leave out."""
    log = MemoryLog()
    manager = Manager(log, config_names=ConfigNames(slo_namespace="team", slo_name="nodes"))
    manager.policies.policies = NodePolicies(plugins=frozenset(PLUGINS) - {AMPLIFICATION})
    config = CONFIG.replace("slo-controller-config, namespace: koordinator-system", "nodes, namespace: team")
    ratio = """  resource-amplification-config: '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}'\n"""
    async with running(manager):
        await manager.apply("\n---\n".join([config + ratio, NODE]))
        await control_round(manager.world, manager.policies)
    return log


async def explains(log: MemoryLog, told: dict[str, str]) -> bool:
    flags = ManagerFlags(
        plugins=told["noderesource_plugins"],
        config_namespace=told["config_namespace"],
        slo_config_name=told["slo_config_name"],
    )
    found = await compare_nodes(
        MemoryEventLog(log),
        MemoryObservationLog(),
        None,
        0,
        log.last_seq,
        lambda _: None,
        names=flags.names,
        plugins=flags.enabled_plugins,
    )
    assert found.tally.recorded > 0
    return found.tally.recorded == found.tally.same and found.fates == []


async def test_the_managers_flags_explain_what_it_recorded() -> None:
    log = await recorded()
    assert await explains(log, FLAGS)
    for name, value in DEFAULTS.items():
        assert not await explains(log, {**FLAGS, name: value}), name


@pytest.mark.parametrize("name", FLAGS)
def test_the_options_are_the_managers_with_its_defaults(name: str) -> None:
    replay: Any = COMMANDS.commands["replay"]
    [option] = [one for one in replay.params if one.name == name]
    own = getattr(ManagerSettings.load([], {}), name)
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert option.default == DEFAULTS[name] == (own if isinstance(own, str) else ",".join(own))
    ManagerSettings.load([option.opts[0], FLAGS[name]], {})


@pytest.mark.parametrize("name", FLAGS)
def test_the_managers_flags_are_refused_where_it_is_not_rerun(name: str) -> None:
    answer = CliRunner().invoke(app, ["replay", f"--{name.replace('_', '-')}", FLAGS[name]])
    assert answer.exit_code == 2
