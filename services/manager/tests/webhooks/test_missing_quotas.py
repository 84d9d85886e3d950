"""A quota that another replica admitted a moment ago is read from the API server before a request is refused."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.pending_quotas import PendingQuotas
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.webhooks.handlers import Desk, ExplanationQueue, review
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koord_manager.shell.webhooks.quota_gate import ObjectsApi
from koordcore.protocol import keys
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from prometheus_client import CollectorRegistry
from support.kubernetes.apiserver import running_api_server
from support.manager.webhook_world import review_body
from support.manual_clock import ManualClock

Json = dict[str, Any]
PATH = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


def quota(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"min": {"cpu": "4"}, "max": {"cpu": "8"}},
    }


PARENT = quota("parent", **{keys.QUOTA_IS_PARENT: "true"})
CHILD = quota("child", **{keys.QUOTA_PARENT: "parent"})


def desk_without_facts(api: ObjectsApi) -> Desk:
    """The services of a replica whose fold is empty."""
    return Desk(
        view=ManagerView(),
        options=Options(),
        pending=PendingQuotas(),
        gate=None,
        metrics=WebhookMetrics(CollectorRegistry()),
        tracer=make_tracer("m", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=0),
        clock=ManualClock(),
        steady=time.monotonic,
        logger=logger("test"),
        actor="manager/t",
        explanations=None,
        explanation_queue=ExplanationQueue(logger("test")),
        api=api,
    )


@pytest.mark.parametrize("kind", ["mutate", "validate"])
async def test_a_child_is_admitted_once_the_api_server_has_its_parent(tmp_path: Path, kind: Any) -> None:
    body = json.dumps(review_body(f"/{kind}-{PATH}", CHILD, namespace="default")).encode()
    async with running_api_server() as server:
        for text in definition_texts().values():
            await server.apply(yaml.safe_load(text))
        api = await connect_api(server.kubeconfig(tmp_path / "admin"), qps=0, burst=1)
        refused = json.loads(await review(desk_without_facts(api), kind, body))["response"]
        await server.apply(PARENT)
        admitted = json.loads(await review(desk_without_facts(api), kind, body))["response"]
        await api.close()

    assert refused["allowed"] is False
    assert "parent" in refused["status"]["message"]
    assert admitted["allowed"] is True
