"""Kubernetes' own end-to-end tests of SIG Scheduling with our scheduler in the place of kube-scheduler.

docs/sig-scheduling.md is the list: what passes there must pass here, and no test is missing from it. The tests are not
ours, wait for minutes, and run one after the other. So two clusters share them.
"""

import re
from pathlib import Path

import pytest
from koordcore.embedded.nats import NatsServer
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.kubernetes.control_plane import ROOT, ControlPlane
from support.sig_scheduling.cluster import scheduled_by_us
from support.sig_scheduling.program import PROGRAM, run_specs

pytestmark = [
    pytest.mark.sig_scheduling,
    pytest.mark.skipif(not PROGRAM.exists(), reason="sig-scheduling not built: `make test-sig-scheduling` needs Go"),
]

WAITS = "conflict between pods with same hostPort and protocol but one using 0.0.0.0"
"""A test that waits five minutes for a pod that must not get a node."""
PAGE = ROOT / "docs" / "sig-scheduling.md"
ROW = re.compile(r"^\| (?P<group>[^|]+) \| (?P<test>[^|]+) \| (?P<result>passes|does not apply)[^|]*\|$", re.MULTILINE)


def listed(result: str = "") -> list[str]:
    """The tests that have this result on the page; "" for any."""
    rows = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return sorted(f"{row['group']}: {row['test']}" for row in rows if result in ("", row["result"]))


async def run(plane: ControlPlane, nats: NatsServer, directory: Path, *flags: str, focus: str = "") -> dict[str, str]:
    """Run tests on a new cluster, and return test -> state, with the failure if it failed."""
    async with scheduled_by_us(plane, nats, directory) as whole:
        specs = await run_specs(directory, f"--kubeconfig={admin_kubeconfig(plane.directory)}", *flags, focus=focus)
        states = {spec.name: f"{spec.state} {spec.failure}".strip() for spec in specs}
        if set(states.values()) != {"passed"}:
            print(whole.trouble(), (directory / "sig-scheduling.log").read_text(encoding="utf-8"), sep="\n")
        return states


async def test_the_page_lists_every_test(tmp_path: Path) -> None:
    assert sorted(spec.name for spec in await run_specs(tmp_path, "--ginkgo.dry-run")) == listed()


async def test_a_pod_whose_host_port_is_taken_waits(
    plane: ControlPlane, fresh_nats_server: NatsServer, tmp_path: Path
) -> None:
    (waiting,) = (name for name in listed("passes") if WAITS in name)
    assert await run(plane, fresh_nats_server, tmp_path, focus=WAITS) == {waiting: "passed"}


async def test_all_others_that_apply_pass(plane: ControlPlane, fresh_nats_server: NatsServer, tmp_path: Path) -> None:
    expected = {name: "passed" for name in listed("passes") if WAITS not in name}
    left_out = [WAITS, *(name.partition(": ")[2] for name in listed("does not apply"))]
    assert await run(plane, fresh_nats_server, tmp_path, *(f"--ginkgo.skip={text}" for text in left_out)) == expected
