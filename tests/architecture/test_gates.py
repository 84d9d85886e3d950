"""Every feature gate that a service accepts is read by its code, or has a reason why it has no effect."""

import ast
from dataclasses import fields

import pytest
from koord_agent.settings import AgentSettings
from koord_descheduler.settings import DeschedulerSettings
from koord_manager.settings import ManagerSettings
from koord_scheduler.domain.framework.gates import SchedulerGates, gate_name
from koord_scheduler.settings import SchedulerSettings
from koordcore.service.settings import ServiceSettings
from support.sources import PACKAGES, sources_of

pytestmark = pytest.mark.xdist_group("sources")

LISTS = frozenset(("gates", "gate_names", "options", "settings"))
"""Modules that list gates. What they say is no use of a gate."""


def words_of(package: str) -> set[str]:
    """The texts, names and attributes in the code of a package, without the modules that list gates."""
    (path,) = (path for path in PACKAGES if path.name == package)
    found: set[str] = set()
    for module, source in sources_of(path).items():
        if module.rpartition(".")[2] in LISTS:
            continue
        for node in source.nodes:
            match node:
                case ast.Constant(value=str(text)):
                    found.add(text)
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    found.add(name)
                case _:
                    pass
    return found


def aliases_of(package: str) -> dict[str, str]:
    """Text -> the name of the constant that has it, in the modules that list gates."""
    (path,) = (path for path in PACKAGES if path.name == package)
    return {
        value.value: target.id
        for module, source in sources_of(path).items()
        if module.rpartition(".")[2] in LISTS
        for node in source.nodes
        if isinstance(node, ast.AnnAssign)
        and isinstance(value := node.value, ast.Constant)
        and isinstance(value.value, str)
        and isinstance(target := node.target, ast.Name)
    }


@pytest.mark.parametrize("settings", [AgentSettings, DeschedulerSettings, ManagerSettings, SchedulerSettings])
def test_a_gate_is_read_or_says_why_it_has_no_effect(settings: type[ServiceSettings]) -> None:
    package = f"koord_{settings.service}"
    words, aliases = words_of(package), aliases_of(package)
    if settings is SchedulerSettings:
        aliases |= {gate_name(field.name): field.name for field in fields(SchedulerGates)}
    unread = {gate.name for gate in settings.known_gates if not {gate.name, aliases.get(gate.name, gate.name)} & words}
    idle = {gate.name for gate in settings.known_gates if gate.no_effect}
    assert unread == idle
