"""Objects are shown with what schedulers and the manager have computed of them, where no API server has it."""

from typing import Any

import httpx
import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.published_status import with_published_status
from koord_manager.shell.documents.api import ManagerApi
from koord_manager.shell.intake import Intake
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.recommendation import ContainerRecommendation, RecommendationComputed, RecommendedAmounts
from koordcore.protocol import keys
from koordcore.service.leader.lease import SoleLeader
from koordctl.objects.columns import object_table
from starlette.applications import Starlette
from support.histories.recording import stored

Json = dict[str, Any]
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
QUOTA: Json = {
    "apiVersion": SIGS,
    "kind": "ElasticQuota",
    "metadata": {"name": "team.a", "namespace": "default", "annotations": {"own": "kept"}},
    "spec": {"min": {"cpu": "2"}, "max": {"cpu": "8", "memory": "8Gi"}},
}
GROUP: Json = {
    "apiVersion": SIGS,
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"minMember": 2},
}


def row(kind: str, document: Json) -> dict[str, object]:
    heads, [cells] = object_table(kind, [document], wide=False)
    return dict(zip(heads, cells, strict=True))


def test_a_quota_is_shown_with_what_is_used_of_it() -> None:
    view = ManagerView()
    assert with_published_status(view.state, "elasticquotas", QUOTA) == QUOTA
    said = QuotaStatusComputed(
        name="team.a", namespace="default", used={"cpu": 1500, "memory": 2 << 30}, runtime={"cpu": 8000}
    )
    view.fold(stored(1, Draft(AggregateRef("quota", "team_a"), said, 0)))

    shown = with_published_status(view.state, "elasticquotas", QUOTA)
    cells = row("ElasticQuota", shown)
    assert (cells["cpu-used"], cells["memory-used"], cells["cpu-max"]) == ("1.5", "2.0Gi", "8")
    assert shown["metadata"]["annotations"] == {"own": "kept", keys.QUOTA_RUNTIME: '{"cpu":"8"}'}
    assert QUOTA["metadata"]["annotations"] == {"own": "kept"}


def test_a_pod_group_is_shown_with_its_phase() -> None:
    view = ManagerView()
    said = GangPhaseChanged(namespace="default", name="train", phase="Scheduled", scheduled=2, running=1)
    view.fold(stored(1, Draft(AggregateRef("gang", "default=train"), said, 0)))

    cells = row("PodGroup", with_published_status(view.state, "podgroups", GROUP))
    assert (cells["phase"], cells["scheduled"], cells["running"]) == ("Scheduled", 2, 1)
    other = {**GROUP, "metadata": {"name": "other", "namespace": "default"}}
    assert with_published_status(view.state, "podgroups", other).get("status") is None


def test_a_recommendation_is_shown_with_its_target() -> None:
    view = ManagerView()
    document: Json = {
        "apiVersion": "analysis.koordinator.sh/v1alpha1",
        "kind": "Recommendation",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"target": {"type": "workload"}},
    }
    view.fold(
        stored(1, Draft(custom_ref("recommendations", "default", "web"), CustomObjectObserved(object=document), 0))
    )
    amounts = RecommendedAmounts(cpu_milli=250, memory_bytes=1 << 30)
    container = ContainerRecommendation(
        name="main", target=amounts, lower_bound=amounts, upper_bound=amounts, uncapped_target=amounts
    )
    view.fold(
        stored(
            2,
            Draft(
                AggregateRef("recommendation", "default=web"),
                RecommendationComputed(
                    namespace="default", name="web", target="pods", cause="first", containers=[container]
                ),
                0,
            ),
        )
    )

    shown = with_published_status(view.state, "recommendations", document)
    [status] = shown["status"]["podStatus"]["containerStatuses"]
    assert status == {"containerName": "main", "resources": {"cpu": "250m", "memory": "1073741824"}}


@pytest.mark.parametrize(("standalone", "shown"), [(True, "Scheduled"), (False, "Pending")])
async def test_behind_an_api_server_the_status_is_that_of_the_object_and_without_one_what_was_computed(
    *, standalone: bool, shown: str
) -> None:
    view = ManagerView()
    group: Json = {**GROUP, "status": {"phase": "Pending"}}
    said = GangPhaseChanged(namespace="default", name="train", phase="Scheduled", scheduled=2, running=1)
    view.fold(stored(1, Draft(custom_ref("podgroups", "default", "train"), CustomObjectObserved(object=group), 0)))
    view.fold(stored(2, Draft(AggregateRef("gang", "default=train"), said, 0)))

    door = httpx.ASGITransport(
        Starlette(routes=ManagerApi(view, Intake(), SoleLeader("one"), standalone=standalone).routes())
    )
    async with httpx.AsyncClient(transport=door, base_url="http://manager") as client:
        one = (await client.get("/v1/objects/podgroups/train")).json()
        [listed] = (await client.get("/v1/objects/podgroups")).json()["items"]
    assert one == listed
    assert one["status"]["phase"] == shown
