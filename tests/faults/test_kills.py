"""A short run of the load and kill suite on three nats-servers; `python -m tests.faults` runs it as long as wanted."""

import pytest
from support.embedded_stack import var_folder
from support.faults.killing import KILLS, Killing
from support.faults.three_servers import three_servers

SEED = 20_261_128
KILLED = 20

pytestmark = [pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow, pytest.mark.deep]


async def test_kills_pauses_and_partitions_lose_no_acknowledged_fact_and_place_no_pod_twice() -> None:
    lines: list[str] = []
    with var_folder() as var:
        async with three_servers(var, nodes=3, simulators=1) as system:
            report = await Killing(system, var, seed=SEED, say=lines.append).run(kills=KILLED)
    assert report.wrong == [], lines
    assert sum(report.done[kind] for kind in KILLS) >= KILLED
    assert report.checks
    assert report.pods
