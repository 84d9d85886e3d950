"""Kubernetes' own end-to-end tests of SIG Scheduling with our scheduler in the place of kube-scheduler.

docs/sig-scheduling.md is the list: what passes there must pass here, and no test is missing from it.
"""

import asyncio
import re
from pathlib import Path

import pytest
from koordcore.embedded.nats import NatsServer
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.kubernetes.control_plane import ROOT, ControlPlane
from support.sig_scheduling.cluster import end_pods_without_port, scheduled_by_us
from support.sig_scheduling.program import PROGRAM, run_specs

pytestmark = [
    pytest.mark.sig_scheduling,
    pytest.mark.skipif(not PROGRAM.exists(), reason="sig-scheduling not built: `make test-sig-scheduling` needs Go"),
]

PAGE = ROOT / "docs" / "sig-scheduling.md"
ROW = re.compile(r"^\| (?P<group>[^|]+) \| (?P<test>[^|]+) \| (?P<result>passes|does not apply)[^|]*\|$", re.MULTILINE)


def listed(result: str = "") -> list[str]:
    """The tests that have this result on the page; "" for any."""
    rows = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return sorted(f"{row['group']}: {row['test']}" for row in rows if result in ("", row["result"]))


async def test_the_page_lists_every_test(tmp_path: Path) -> None:
    assert sorted(spec.name for spec in await run_specs(tmp_path, "--ginkgo.dry-run")) == listed()


async def test_all_that_apply_pass(plane: ControlPlane, fresh_nats_server: NatsServer, tmp_path: Path) -> None:
    left_out = [f"--ginkgo.skip={name.partition(': ')[2]}" for name in listed("does not apply")]
    told: list[str] = []
    async with scheduled_by_us(plane, fresh_nats_server, tmp_path) as whole:
        ending = asyncio.create_task(end_pods_without_port(plane, told))
        specs = await run_specs(tmp_path, f"--kubeconfig={admin_kubeconfig(plane.directory)}", *left_out)
        ending.cancel()
        trouble = whole.trouble()
    failures = [spec for spec in specs if spec.state != "passed"]
    if failures or not specs:
        print(trouble, (tmp_path / "sig-scheduling.log").read_text(encoding="utf-8"), sep="\n")
    assert failures == []
    assert sorted(spec.name for spec in specs) == listed("passes")
    assert len(told) == 1, "one test wants to see that a taken port of the host keeps a pod from its node"
