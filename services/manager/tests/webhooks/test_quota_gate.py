"""Pods that wait for the account of their quota are answered when the gate closes, not when their time is over."""

import asyncio
from pathlib import Path

from koord_manager.domain.admission.context.quota import read_quota
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.webhooks.quota_gate import ENDED, QuotaGate, UpdatePolicy
from koordcore.values.resources import parse_resources
from support.kubernetes.apiserver import running_api_server
from support.kubernetes.faults import Fault
from support.until import until

QUOTA = read_quota({"metadata": {"namespace": "default", "name": "web"}, "spec": {"max": {"cpu": "8"}}})


async def test_pods_in_work_and_pods_that_wait_are_denied_when_the_gate_closes(tmp_path: Path) -> None:
    async with running_api_server() as server:
        server.faults.add(Fault("GET", "/elasticquotas/web", seconds=3_600))
        api = await connect_api(server.kubeconfig(tmp_path / "admin"), qps=0, burst=1)
        gate = QuotaGate(api, UpdatePolicy(), lambda: 0.0)
        in_work = asyncio.create_task(gate.ask(QUOTA, parse_resources({"cpu": "1"})))
        await until(lambda: server.faults.served == 1)
        waiting = asyncio.create_task(gate.ask(QUOTA, parse_resources({"cpu": "1"})))
        await asyncio.sleep(0)  # lets it join the queue
        await gate.close()
        answers = await asyncio.gather(in_work, waiting)
        await api.close()
    assert [(answer.allowed, answer.message) for answer in answers] == [(False, ENDED)] * 2
