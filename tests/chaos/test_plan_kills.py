"""kill -9 of the leading scheduler at each step of a plan: the pods move together, once, and the gang gets its nodes.

Real processes of the embedded stack, with two schedulers. A gang waits for whole GPUs, and two pods with half a GPU
each have to move together. Whatever scheduler leads next goes on with the plan.
"""

import contextlib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from koordcore.embedded.supervisor import Supervisor
from koordcore.events.envelope import Event
from koordcore.events.gateway import PodEvicted, PodEvictionRequested
from koordcore.events.migration import RepackCommitted, RepackEnded, RepackPlanned
from koordcore.events.pod import PodPlaced
from koordcore.service.leader.lease import LeaseUnavailable
from koordcore.state.aggregates import PodState
from koordcore.state.migrations import DONE
from koordcore.values import codec
from koordcore.values.allocation import is_reservation
from koordctl.access.log import LogTrouble, open_log
from koordctl.objects.priority_classes import priority_class_manifests
from koordctl.replay.verify import verify_now
from koordctl.stack.leaders import leases_in_log
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import Sender, url_of, var_folder, with_standbys, write_nodes
from support.migration_log import MigrationLog
from support.until import until

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "descheduler"
GANG: Final = ("train-0", "train-1")
SERVING: Final = 3
MOVED: Final = 2
PATIENCE_SECONDS: Final = 420.0
LEASE: Final = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=300ms",
)

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres]


def manifests(*path: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(EXAMPLES.joinpath(*path).read_text())]


def node(name: str) -> dict[str, Any]:
    capacity = {"cpu": 8, "memory": "32Gi", "pods": 100}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": capacity}}


def configuration() -> dict[str, Any]:
    """Return the configuration of the example. Its rounds are short, and one of the serving pods always runs."""
    (found,) = manifests("configurations", "gpu-repack.yaml")
    found["deschedulingInterval"] = "1s"
    arguments = {config["name"]: config["args"] for config in found["profiles"][0]["pluginConfig"]}
    arguments["FragmentationAware"]["gpuRepack"]["waitSeconds"] = 1
    arguments["MigrationController"] |= {"maxMigratingPerWorkload": MOVED, "maxUnavailablePerWorkload": MOVED}
    return found


STEPS: Final[set[str]] = {
    RepackPlanned.__name__,
    "Reservation placed",
    RepackCommitted.__name__,
    PodEvictionRequested.__name__,
    PodEvicted.__name__,
    "successor placed",
}


def step_of(event: Event, uid: str) -> str:
    """Return the name of the step of a plan that an event of an aggregate is; "" for others and the end."""
    match event:
        case RepackPlanned() | RepackCommitted() | PodEvictionRequested() | PodEvicted():
            return type(event).__name__
        case PodPlaced() if event.name not in GANG:
            return "Reservation placed" if is_reservation(uid, event.allocation) else "successor placed"
        case _:
            return ""


async def leading_scheduler(var: Path) -> str:
    """Return the holder of the schedulers' lease, also if it has expired; "" while the log is away."""
    with contextlib.suppress(LogTrouble, LeaseUnavailable):
        record = (await leases_in_log(["scheduler"], var))["scheduler"]
        return "" if record is None else record.holder
    return ""


async def test_whoever_leads_next_goes_on_with_the_plan_of_a_killed_scheduler() -> None:
    nodes = [node(f"node-{number}") for number in range(1, SERVING + 1)]
    with var_folder() as var:
        file = write_nodes(var, nodes)
        descheduler = var / "descheduler.yaml"
        descheduler.write_bytes(codec.encode(configuration()))
        options = StackOptions(var=var, simulated=file, descheduler=descheduler, flags={"scheduler": LEASE})
        processes = with_standbys(specs(options), ["scheduler"])
        async with (
            Supervisor(processes, state_file=var / "run" / "stack.json") as supervisor,
            contextlib.AsyncExitStack() as closing,
        ):
            sender = Sender(url_of(processes, "manager"))
            closing.push_async_callback(sender.close)
            log = MigrationLog(var, fewest_available=SERVING - MOVED)
            await sender.send("/v1/apply", [*nodes, *priority_class_manifests()])
            await sender.send("/v1/apply", manifests("gpu-repack", "devices.yaml"))
            await sender.send("/v1/apply", manifests("gpu-repack", "inference.yaml"))

            async def is_serving() -> bool:
                await log.read()
                return len(log.running()) == SERVING

            await until(is_serving, "the pods in the way of the gang run", every=0.2)
            await sender.send("/v1/apply", manifests("gpu-repack", "training.yaml"))
            reached: set[str] = set()
            killed_at: set[str] = set()
            killed: list[str] = []

            async def has_ended() -> bool:
                reached.update(step for stored, event in await log.read() if (step := step_of(event, stored.ref.id)))
                leader = await leading_scheduler(var) if reached > killed_at else ""
                if leader and leader not in killed:
                    await supervisor.kill(leader.rpartition("_")[0])
                    killed.append(leader)
                    killed_at.update(reached)
                is_ended = any(isinstance(event, RepackEnded) for _, event in log.seen)
                return is_ended and killed_at == STEPS and log.is_settled(SERVING + len(GANG))

            await until(has_ended, "the gang runs and the plan has ended", seconds=PATIENCE_SECONDS, every=0.05)
            print(f"killed: {', '.join(killed)}")  # for the record
            assert len(killed) > 1, killed
            log.check()
            log.check_the_end()
            check_the_plan(log)
            for spec in processes:
                await supervisor.wait_ready(spec.name, seconds=PATIENCE_SECONDS)
            async with open_log(var) as opened:
                verdict = await verify_now(opened.bus, manager=url_of(processes, "manager"), seconds=PATIENCE_SECONDS)
            assert verdict.equal, verdict


def check_the_plan(log: MigrationLog) -> None:
    """Check that one plan was made, committed and carried out, and that no pod left before its commit."""
    steps = [(stored.seq, event) for stored, event in log.seen if stored.ref.kind == "repack"]
    (planned,) = [event for _, event in steps if isinstance(event, RepackPlanned)]
    (committed,) = [seq for seq, event in steps if isinstance(event, RepackCommitted)]
    (ended,) = [event for _, event in steps if isinstance(event, RepackEnded)]
    assert ended.result == DONE, ended
    evicted = {stored.ref.id: stored.seq for stored, event in log.seen if isinstance(event, PodEvictionRequested)}
    assert sorted(evicted) == sorted(move.pod.uid for move in planned.moves)
    assert min(evicted.values()) > committed, "a pod left before all places were reserved"
    nodes = {pod.name: pod.node for pod in log.state.of_kind(PodState).values()}
    assert {nodes[name] for name in GANG} == {*planned.nodes}
