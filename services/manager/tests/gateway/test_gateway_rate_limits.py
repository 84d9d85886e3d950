"""Kubernetes events have a rate limit of their own: they wait for no binding, and no binding waits for them."""

import asyncio
from pathlib import Path
from typing import Any

from koord_manager.shell.gateway.api import connect_api
from support.kubernetes.apiserver import running_api_server

EVENTS = "/api/v1/namespaces/default/events"
SECONDS_THAT_NO_TEST_LASTS = 100_000


def event(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": {}, "reason": "Scheduled"}


async def test_events_go_out_while_other_requests_wait(tmp_path: Path) -> None:
    async with running_api_server() as server:
        kubeconfig = server.kubeconfig(tmp_path / "admin")
        api = await connect_api(kubeconfig, qps=1 / SECONDS_THAT_NO_TEST_LASTS, burst=1)
        assert (await api.request("GET", "/api/v1/pods")).ok
        waiting = asyncio.create_task(api.request("GET", "/api/v1/namespaces/default/pods/events"))

        answer = await api.request("POST", EVENTS, body=event("a"))

        assert answer.status == 201
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await api.close()
