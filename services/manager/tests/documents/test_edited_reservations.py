"""`koord apply` warns of a change of a Reservation that the scheduler does not carry out, because it has a node."""

import copy
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol.manifests import shape_manifest
from support.histories.recording import stored

NOW = "2026-01-01T00:00:00Z"
DOCUMENT: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "web"},
    "spec": {
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "ttl": "1h",
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]}},
    },
}


class Story:
    def __init__(self) -> None:
        self.view = ManagerView()
        self.seq = 0

    def fold(self, ref: AggregateRef, event: Event) -> None:
        self.seq += 1
        self.view.fold(stored(self.seq, Draft(ref, event, 0)))

    def apply(self, document: dict[str, Any]) -> tuple[str, ...]:
        shaped = shape_manifest(copy.deepcopy(document))
        applied = decide_apply(self.view, shaped, new_uid="u", now=NOW, options=Options())
        for draft in applied.drafts:
            self.fold(draft.ref, draft.event)
        return applied.warnings

    def place(self) -> None:
        examined = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="p", based_on=BasedOn(0))
        event = PodPlaced(
            namespace="", name="web", node="a", requests={"cpu": 4000}, attempt=1, queued_at=NOW, explanation=examined
        )
        self.fold(AggregateRef("pod", "u"), event)


def changed(cpu: str = "4", ttl: str = "1h") -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["spec"]["ttl"] = ttl
    document["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return document


@pytest.mark.parametrize(
    ("is_placed", "document", "warns"),
    [(True, changed(cpu="8"), True), (True, changed(ttl="2h"), False), (False, changed(cpu="8"), False)],
    ids=["template of a placed one", "lifetime of a placed one", "template of a waiting one"],
)
def test_change_without_effect_gives_a_warning(is_placed: bool, document: dict[str, Any], warns: bool) -> None:
    story = Story()
    assert story.apply(DOCUMENT) == ()
    if is_placed:
        story.place()
    warnings = story.apply(document)
    assert [warning.partition(":")[0] for warning in warnings] == (["spec.template"] if warns else [])
