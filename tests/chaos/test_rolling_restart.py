"""A rolling restart of every service while pods are submitted: none lost, none placed twice, and every fold agrees.

How long pods wait meanwhile: `python -m tests.bench rolling_restart`.
"""

import asyncio

import pytest
from koordcore.service.lifecycle import EXIT_OK
from support.embedded_stack import var_folder
from support.rolling_restart import doubled_stack, outcome_of, services_of

READY_SECONDS = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres, pytest.mark.timeout(420)]


async def test_a_rolling_restart_of_every_service_loses_no_pod() -> None:
    with var_folder() as var:
        async with doubled_stack(var, nodes=4) as (supervisor, processes, clients):
            services = services_of(processes)
            halves = [[name for name in services if name.endswith("-2") is is_second] for is_second in (False, True)]
            async with clients.submitting(pods_per_second=40):
                for half in halves:
                    await asyncio.gather(*(supervisor.restart(name, seconds=READY_SECONDS) for name in half))
            outcome = await outcome_of(var, processes, clients)
            restarted = [supervisor.status().find(name) for name in services]

    assert [(each.restarts, each.last_exit) for each in restarted if each is not None] == [(1, EXIT_OK)] * len(services)
    assert outcome.submitted > 0
    assert outcome.lost == ()
    assert outcome.findings.all_hold, outcome.findings.sentences()
    assert outcome.findings.submitted == outcome.findings.placed == outcome.submitted
    assert outcome.verification.equal, outcome.verification
