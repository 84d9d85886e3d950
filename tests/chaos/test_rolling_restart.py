"""An upgrade and a restart of every service while pods are submitted: none lost, none placed twice, every fold agrees.

First, half of the services run the code of an earlier commit beside those that were upgraded, on one log: earlier
leaders with new standbys, then new leaders with earlier standbys. How long pods wait meanwhile:
`python -m tests.bench rolling_restart`.
"""

import asyncio
from pathlib import Path

import pytest
from koordcore.service.lifecycle import EXIT_OK
from support.embedded_stack import var_folder
from support.rolling_restart import Code, checkout_of, doubled_stack, outcome_of, services_of

EARLIER = "cc1cca1f"
"""The commit from which an upgrade must work; the one of `tests/integration/golden`."""
READY_SECONDS = 120.0

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres]


async def test_an_upgrade_and_a_restart_of_every_service_lose_no_pod(tmp_path: Path) -> None:
    if not checkout_of(EARLIER, tmp_path / "earlier"):
        pytest.skip(f"the repository has no commit {EARLIER}: git fetch --unshallow")
    code = Code(tmp_path / "code")
    code.use(tmp_path / "earlier")
    with var_folder() as var:
        async with doubled_stack(var, nodes=4, code=code) as (supervisor, processes, clients):
            services = services_of(processes)
            seconds = [name for name in services if name.endswith("-2")]
            firsts = [name for name in services if name not in seconds]
            code.use_present()
            async with clients.submitting(pods_per_second=40):
                for wave in (firsts, seconds, firsts):
                    await asyncio.gather(*(supervisor.restart(name, seconds=READY_SECONDS) for name in wave))
            outcome = await outcome_of(var, processes, clients)
            ended = {each.name: (each.restarts, each.last_exit) for each in supervisor.status().processes}
            failed = [name for name in services if ended[name][1] != EXIT_OK]
            logs = [(var / "log" / f"{name}.log").read_text()[-4000:] for name in failed]

    assert {name: ended[name] for name in firsts} == dict.fromkeys(firsts, (2, EXIT_OK)), logs
    assert {name: ended[name] for name in seconds} == dict.fromkeys(seconds, (1, EXIT_OK)), logs
    assert outcome.submitted > 0
    assert outcome.lost == ()
    assert not outcome.findings.sentences()
    assert outcome.findings.submitted == outcome.findings.placed == outcome.submitted
    assert outcome.verification.equal, outcome.verification
