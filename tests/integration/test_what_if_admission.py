"""A recorded log admitted anew: nothing differs with the recorded profiles, and with others what they say."""

import json
from typing import Any

import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.protocol.manifests import read_documents
from koordctl.replay.admission import read_profiles, title, tried_of
from support.manager.recording import Json, recording

pytestmark = [pytest.mark.nats]

PRIORITY: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5500,
}
OTHERS = b"""
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: batch}
spec:
  selector: {matchExpressions: [{key: app, operator: In, values: [etl, report]}]}
  qosClass: BE
  priorityClassName: koord-batch
  labels: {tier: low}
"""


def profile(**spec: Any) -> Json:
    matched = {"selector": {"matchLabels": {"class": "batch"}}, "qosClass": "BE", "priorityClassName": "koord-batch"}
    metadata = {"name": "batch"}
    api_version = "config.koordinator.sh/v1alpha1"
    return {
        "apiVersion": api_version,
        "kind": "ClusterColocationProfile",
        "metadata": metadata,
        "spec": {**matched, **spec},
    }


def template(**labels: str) -> Json:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    container = {"name": "run", "image": "i", "env": [{"name": "TOKEN", "value": "s3cr3t"}], "resources": resources}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def pod(name: str, **labels: str) -> Json:
    made = template(**labels)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": name}}


def deployment(name: str, replicas: int, **labels: str) -> Json:
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template(app=name, **labels)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def test_a_recorded_log_is_admitted_alike_and_otherwise_with_other_profiles(nats_server: NatsServer) -> None:
    async with recording(nats_server, "admission") as story:
        await story.apply(PRIORITY, profile())
        await story.apply(deployment("etl", 3, **{"class": "batch"}), pod("import", **{"class": "batch"}))
        refused = pod("report", **{"app": "report", "koordinator.sh/qosClass": "BE"})
        await story.apply(refused, taken=("refused",))
        await story.apply(pod("web", app="web"))
        await story.until(lambda state: sum(ref.kind == "podspec" for ref, _ in state) == 5)
        before = (await story.bus.events.head()).last_seq
        await story.apply(profile(labels={"later": "yes"}), pod("second", **{"class": "batch"}))

        for begin in (0, before):
            same = (await story.again(begin=begin)).admission
            assert (same.unexplained, same.fates, same.not_reviewed, same.tally.not_retained) == ([], [], 0, 0)
            assert same.tally.recorded == same.tally.same == (7 if begin == 0 else 1)

        other = (await story.again(admitting=tried_of(read_profiles(read_documents(OTHERS)), {}))).admission
        assert other.unexplained == []
        assert sorted(map(title, other.changed))[-2:] == ["pods default/import", "pods default/second"]
        assert len(other.changed) == 3 + 2
        assert ([title(one) for one in other.admitted], other.denied) == (["pods default/report"], [])
        none = (await story.again(admitting=tried_of(read_profiles([]), {}))).admission
        assert {title(one).partition("-")[0] for one in none.changed} == {
            "pods default/etl",
            "pods default/import",
            "pods default/second",
        }
        for found in (other, none):
            assert "s3cr3t" not in json.dumps(found.document())
