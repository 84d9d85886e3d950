"""kill -9 while pods migrate: each pod moves once, onto a Reservation made before, and nothing is lost or leaked.

Real processes of the embedded stack. A node gets a taint, so all its pods have to leave, a few at a time. One test
kills the descheduler at every step. The other kills all services and the log at random, while the taint goes from node
to node.
"""

import contextlib
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event
from koordcore.events.gateway import PodEvicted, PodEvictionRequested
from koordcore.events.migration import MigrationAdvanced, MigrationEnded
from koordcore.values import codec
from koordctl.access.log import open_log
from koordctl.replay.verify import verify_now
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import Sender, url_of, var_folder, write_nodes
from support.migration_log import MigrationLog
from support.until import until

REPLICAS = 12
MOST_UNAVAILABLE = 3
PATIENCE_SECONDS = 420.0
EMPTIED = "node-0"
WAVES = 4
KILLS_PER_WAVE = 7
TAINT = {"key": "gone", "effect": "NoSchedule"}
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "leaderElection": {"leaseDuration": "1500ms", "renewDeadline": "1s", "retryPeriod": "200ms"},
    "deschedulingInterval": "1s",
    "profiles": [
        {
            "name": "taints",
            "plugins": {"deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]}},
            "pluginConfig": [
                {
                    "name": "MigrationController",
                    "args": {
                        "defaultJobTTL": "20s",
                        "maxMigratingPerNode": 0,
                        "maxMigratingPerWorkload": MOST_UNAVAILABLE,
                        "maxUnavailablePerWorkload": MOST_UNAVAILABLE,
                        "objectLimiters": {},
                    },
                }
            ],
        }
    ],
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
            },
        },
    },
}

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres]


def node(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    amounts = {"cpu": 8, "memory": "32Gi", "pods": 100}
    spec = {"taints": [*taints]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"capacity": amounts},
    }


@contextlib.asynccontextmanager
async def stack(var: Path) -> AsyncGenerator[tuple[Supervisor, list[ProcessSpec], Sender]]:
    nodes = [node(f"node-{number}") for number in range(3)]
    file = write_nodes(var, nodes)
    configuration = var / "descheduler.yaml"
    configuration.write_bytes(codec.encode(CONFIGURATION))
    processes = specs(StackOptions(var=var, simulated=file, descheduler=configuration))
    async with Supervisor(processes, state_file=var / "run" / "stack.json") as supervisor:
        sender = Sender(url_of(processes, "manager"))
        try:
            await sender.send("/v1/apply", [*nodes, DEPLOYMENT])
            yield supervisor, processes, sender
        finally:
            await sender.close()


def step_of(event: Event) -> str:
    """Return a name for the step of a migration that an event is; "" for other events."""
    match event:
        case MigrationAdvanced() | MigrationEnded():
            conditions = [f"{each.type}={each.is_true}" for each in event.progress.conditions]
            return ",".join([event.progress.phase, *conditions])
        case PodEvictionRequested() | PodEvicted():
            return type(event).__name__
        case _ if CATALOGUE.of(type(event)).kind == "migration":
            return type(event).__name__
        case _:
            return ""


async def test_each_pod_moves_once_though_the_descheduler_is_killed_at_each_step() -> None:
    with var_folder() as var:
        async with stack(var) as (supervisor, processes, sender):
            log = MigrationLog(var, fewest_available=REPLICAS - MOST_UNAVAILABLE)

            async def all_run() -> bool:
                await log.read()
                return len(log.running()) == REPLICAS

            await until(all_run, "all pods run", every=0.2)
            await sender.send("/v1/apply", [node(EMPTIED, TAINT)])
            steps: set[str] = set()
            killed_at: set[str] = set()
            kills = 0

            async def is_settled() -> bool:
                nonlocal kills
                steps.update(step for _, event in await log.read() if (step := step_of(event)))
                states = {found.name: found.state for found in supervisor.status().processes}
                if not steps <= killed_at and states["descheduler"] == "ready":
                    killed_at.update(steps)
                    await supervisor.kill("descheduler")
                    kills += 1
                return log.is_empty(EMPTIED) and log.is_settled(REPLICAS)

            await until(is_settled, "the node is empty", seconds=PATIENCE_SECONDS, every=0.1)
            log.check()
            log.check_the_end()
            assert {"MigrationArbitrated", "PodEvictionRequested", "PodEvicted"} <= killed_at
            await supervisor.wait_ready("descheduler", seconds=PATIENCE_SECONDS, after_restarts=kills)
            async with open_log(var) as opened:
                verdict = await verify_now(opened.bus, manager=url_of(processes, "manager"), seconds=PATIENCE_SECONDS)
            assert verdict.equal, verdict


async def test_a_storm_of_migrations_loses_no_pod_though_all_services_are_killed_at_random() -> None:
    rng = random.Random(20261125)
    with var_folder() as var:
        async with stack(var) as (supervisor, processes, sender):
            log = MigrationLog(var, fewest_available=REPLICAS - MOST_UNAVAILABLE)

            async def all_run() -> bool:
                await log.read()
                return len(log.running()) == REPLICAS

            await until(all_run, "all pods run", every=0.2)
            names = {found.name for found in supervisor.status().processes}
            killed = dict.fromkeys(sorted(names), 0)
            waves = 0

            async def storm_is_over() -> bool:
                """Kill processes while a node gets empty, those first that were killed least; then go to the next."""
                nonlocal waves
                await log.read()
                kills = sum(killed.values())
                if kills < waves * KILLS_PER_WAVE:
                    ready = [found.name for found in supervisor.status().processes if found.state == "ready"]
                    if ready and rng.random() < 0.3:
                        name = min(ready, key=lambda each: (killed[each], rng.random()))
                        await supervisor.kill(name)
                        killed[name] += 1
                elif waves == WAVES:
                    return True
                elif waves == 0 or log.is_empty(f"node-{(waves - 1) % 2}"):
                    emptied, filled = waves % 2, (waves + 1) % 2
                    await sender.send("/v1/apply", [node(f"node-{filled}"), node(f"node-{emptied}", TAINT)])
                    waves += 1
                return False

            await until(storm_is_over, "the storm", seconds=2 * PATIENCE_SECONDS, every=0.3)
            assert all(killed.values()), killed

            async def is_settled() -> bool:
                await log.read()
                return log.is_empty(f"node-{(waves - 1) % 2}") and log.is_settled(REPLICAS)

            await until(is_settled, "the last node is empty", seconds=PATIENCE_SECONDS, every=0.2)
            log.check()
            log.check_the_end()
            for name, times in killed.items():
                await supervisor.wait_ready(name, seconds=PATIENCE_SECONDS, after_restarts=times)
            async with open_log(var) as opened:
                verdict = await verify_now(opened.bus, manager=url_of(processes, "manager"), seconds=PATIENCE_SECONDS)
            assert verdict.equal, verdict
