"""What is worth a look in a configuration is said at every door, also of one that is refused, and is never lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from koord_manager.cycle import run_cycle
from koord_manager.domain.admission.options import Options
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.state.aggregates import ConfigState
from koordctl.objects.lint import Linter
from support.manager.loops import Manager, running
from support.manager.webhook_world import ALL_GATES, review_body, webhook_world

LENDS_TOO_MUCH = {"enable": True, "cpuReclaimThresholdPercent": 120}
FIELD = "colocation-config.cpuReclaimThresholdPercent"


GOOD: dict[str, Any] = {}
BAD: dict[str, Any] = {"resource-threshold-config": '{"clusterStrategy": {"cpuSuppressThresholdPercent": 150}}'}
"""Another section refuses the object."""


def config(**data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "slo-controller-config",
            "namespace": "koordinator-system",
            "labels": {"koordinator.sh/configmap-type": "slo-controller-config"},
        },
        "data": {"colocation-config": json.dumps(LENDS_TOO_MUCH), **data},
    }


@pytest.mark.parametrize(("data", "action"), [(GOOD, "created"), (BAD, "refused")])
async def test_an_applied_configuration_is_answered_with_its_warnings_whether_it_is_taken_or_not(
    data: dict[str, Any], action: str
) -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        (result,) = await manager.apply(json.dumps(config(**data)))
    (finding,) = Linter(Options()).judge([config(**data)])

    assert result.action == action
    (warning,) = result.warnings
    assert warning.startswith(f"{FIELD}: 120 % may lend more cpu than a node has")
    assert finding.warnings == (warning,)
    assert bool(finding.violations) is (action == "refused")


@pytest.mark.parametrize(("data", "allowed"), [(GOOD, True), (BAD, False)])
async def test_a_review_carries_the_warnings_whether_it_allows_or_not(
    tmp_path: Path, data: dict[str, Any], allowed: bool
) -> None:
    async with webhook_world(tmp_path, ALL_GATES) as world:
        body = review_body("/validate-configmap", config(**data), namespace="koordinator-system")
        answer = (await world.tls.post("/validate-configmap", content=json.dumps(body))).json()["response"]

    assert answer["allowed"] is allowed
    assert [warning.partition(":")[0] for warning in answer["warnings"]] == [FIELD]


async def test_a_warning_that_the_log_refuses_is_said_in_the_next_round() -> None:
    log = MemoryLog()
    manager, other = Manager(log, name="one"), Manager(log, name="two")
    async with running(manager, other):
        await manager.apply(json.dumps(config()))
        await other.folded(log.last_seq)
        behind = manager.context._replace(log=_Overtaken(manager, other))
        await run_cycle(behind, manager.policies)
        assert _warnings(manager) == {}
        await run_cycle(manager.context, manager.policies)
        assert set(_warnings(manager)) == {FIELD}


class _Overtaken:
    """The log of a manager before whose every append somebody else changes the ConfigMap."""

    def __init__(self, manager: Manager, other: Manager) -> None:
        self._manager, self._other = manager, other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager.event_log, name)

    async def append(self, events: Any, **more: Any) -> Any:
        await self._other.apply(json.dumps(config(**{"cpu-burst-config": "{}"})))
        return await self._manager.event_log.append(events, **more)


def _warnings(manager: Manager) -> dict[str, str]:
    (state,) = manager.view.state.of_kind(ConfigState).values()
    return state.warnings
