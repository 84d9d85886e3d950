"""A gang that waits for whole GPUs gets them on a real stack: pods move together, after their places are reserved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support.koord_command import KoordCommand
from support.servers import server_directory
from support.until import until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("embedded-stack"),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "descheduler"
GANG = ("train-0", "train-1")


class Stack(KoordCommand):
    """The command with what this story asks."""

    def nodes(self) -> dict[str, str]:
        """Name of a pod -> its node, of pods that have one."""
        pods = self.ask("get", "pods")["items"]
        return {pod["metadata"]["name"]: node for pod in pods if (node := pod["spec"].get("nodeName"))}

    def facts(self, kind: str) -> list[dict[str, Any]]:
        """The facts of the aggregates of a kind, oldest first."""
        return [
            msgspec.json.decode(line)
            for line in self.run("events", "-k", kind, "--since", "0", "-o", "json").splitlines()
        ]


@pytest.fixture
def stack() -> Iterator[Stack]:
    """A stack with three nodes of two GPUs, and one pod with half a GPU on each of them."""
    with server_directory() as folder:
        stack = Stack(folder / "var")
        configuration = yaml.safe_load((EXAMPLES / "configurations" / "gpu-repack.yaml").read_text())
        configuration["deschedulingInterval"] = "1s"
        file = folder / "gpu-repack.yaml"
        file.write_text(yaml.safe_dump(configuration))
        try:
            stack.run("up", "--no-agent", "--simulated-nodes", "3", "--descheduler", str(file))
            stack.run("apply", "-f", str(EXAMPLES / "gpu-repack" / "devices.yaml"))
            stack.run("apply", "-f", str(EXAMPLES / "gpu-repack" / "inference.yaml"))
            until_blocking(lambda: sorted(stack.nodes().values()) == ["node-1", "node-2", "node-3"])
            yield stack
        finally:
            stack.run("down")


def test_gang_runs_after_two_pods_have_moved_as_one_plan(stack: Stack) -> None:
    before = stack.nodes()
    stack.run("apply", "-f", str(EXAMPLES / "gpu-repack" / "training.yaml"))
    until_blocking(lambda: stack.nodes().keys() >= {*GANG, *before})
    until_blocking(lambda: [each["type"] for each in stack.facts("repack")][-1:] == ["RepackEnded"])

    after = stack.nodes()
    assert len({after[pod] for pod in GANG}) == len(GANG)
    assert len({after[pod] for pod in before}) == 1, "the pods with half GPUs share the third node"
    planned, committed, *_, ended = stack.facts("repack")
    assert ended["body"]["result"] == "done"
    assert planned["body"]["gang"] == "default/train"
    assert {after[move["pod"]["name"]] for move in planned["body"]["moves"]} == {
        move["target"] for move in planned["body"]["moves"]
    }, "the pods land where the scheduler said before"
    evictions = [each["position"] for each in stack.facts("eviction")]
    assert min(evictions) > committed["position"], "no pod left before all places were reserved"

    jobs = stack.ask("get", "migrations")["items"]
    assert {job["metadata"]["annotations"]["descheduler.koordinator.sh/move-plan"] for job in jobs} == {planned["id"]}
    told = stack.run("explain", "migration", jobs[0]["metadata"]["name"])
    assert "make room for default/train" in told
    assert "plan-committed" in told
    assert "plan-done" in told
    assert "plan_commit" in stack.run("audit")
    moved = planned["body"]["moves"][0]["pod"]
    life = stack.run("explain", "pod", moved["name"], "--uid", moved["uid"])
    assert "taken by migration (FragmentationAware, job" in life
    assert "its workload missed one pod for" in life
