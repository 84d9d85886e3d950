"""The account of a quota: pods that wait are answered when the gate closes, and one bad pod harms no other."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koord_manager.domain.admission.context.quota import read_quota
from koord_manager.shell.gateway.api import ApiResponse, connect_api
from koord_manager.shell.webhooks.quota_gate import ENDED, QuotaGate, UpdatePolicy
from koordcore.protocol import keys
from koordcore.service.telemetry.logging import logger
from koordcore.values.quantity import Quantity
from koordcore.values.resources import ResourceList, parse_resources
from support.kubernetes.apiserver import running_api_server
from support.kubernetes.faults import Fault
from support.until import until

DOCUMENT: dict[str, Any] = {"metadata": {"namespace": "default", "name": "web"}, "spec": {"max": {"cpu": "8"}}}
QUOTA = read_quota(DOCUMENT)
LOG = logger("test")


class OneQuota:
    """An API server with one quota. It raises `failure` instead of its next answers to a method, once each."""

    def __init__(self) -> None:
        self.document = json.loads(json.dumps(DOCUMENT))
        self.failures: dict[str, Exception] = {}

    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        await asyncio.sleep(0)
        if method == "PATCH":
            annotations: Any = json.loads(json.dumps(body))["metadata"]["annotations"]
            self.document["metadata"].setdefault("annotations", {}).update(annotations)
        if method in self.failures:
            raise self.failures.pop(method)
        return ApiResponse(200, json.dumps(self.document).encode())

    @property
    def counted(self) -> Any:
        """The usage as it is written."""
        return json.loads(self.document["metadata"]["annotations"][keys.QUOTA_CHILD_REQUEST])


async def answers_of(gate: QuotaGate, requests: list[ResourceList]) -> list[tuple[bool, str]]:
    """Ask for all pods at once."""
    answers = await asyncio.gather(*(gate.ask(QUOTA, request) for request in requests))
    return [(answer.allowed, answer.message) for answer in answers]


async def test_pods_in_work_and_pods_that_wait_are_denied_when_the_gate_closes(tmp_path: Path) -> None:
    async with running_api_server() as server:
        server.faults.add(Fault("GET", "/elasticquotas/web", seconds=3_600))
        api = await connect_api(server.kubeconfig(tmp_path / "admin"), qps=0, burst=1)
        gate = QuotaGate(api, UpdatePolicy(), lambda: 0.0, LOG)
        in_work = asyncio.create_task(gate.ask(QUOTA, parse_resources({"cpu": "1"})))
        await until(lambda: server.faults.served == 1)
        waiting = asyncio.create_task(gate.ask(QUOTA, parse_resources({"cpu": "1"})))
        await asyncio.sleep(0)  # lets it join the queue
        await gate.close()
        answers = await asyncio.gather(in_work, waiting)
        await api.close()
    assert [(answer.allowed, answer.message) for answer in answers] == [(False, ENDED)] * 2


async def test_a_pod_that_cannot_be_evaluated_is_denied_alone() -> None:
    api, one = OneQuota(), parse_resources({"cpu": "1"})
    gate = QuotaGate(api, UpdatePolicy(), lambda: 0.0, LOG)
    beyond = {"cpu": Quantity(10**5000)}  # Python writes no number of so many digits

    answers = await answers_of(gate, [one, beyond, one])

    assert [allowed for allowed, _ in answers] == [True, False, True]
    assert answers[1][1].startswith("quota web cannot be evaluated: ValueError")
    assert api.counted == {"cpu": "2"}


async def test_an_unexpected_error_of_a_write_denies_its_batch_once_and_ends_nothing() -> None:
    api, one = OneQuota(), parse_resources({"cpu": "1"})
    gate = QuotaGate(api, UpdatePolicy(), lambda: 0.0, LOG)
    api.failures["PATCH"] = ValueError("not an answer")  # although the usage is stored

    answers = await answers_of(gate, [one, one])
    later = await answers_of(gate, [one])

    assert [allowed for allowed, _ in answers] == [False, False]
    assert "not an answer" in answers[0][1]
    assert later == [(True, "")]
    assert api.counted == {"cpu": "3"}, "the first batch is counted once"


async def test_after_an_unexpected_error_of_a_read_each_pod_is_decided_alone() -> None:
    api, one = OneQuota(), parse_resources({"cpu": "1"})
    gate = QuotaGate(api, UpdatePolicy(), lambda: 0.0, LOG)
    api.failures["GET"] = ValueError("not an answer")

    assert [allowed for allowed, _ in await answers_of(gate, [one, one])] == [True, True]
    assert api.counted == {"cpu": "2"}
