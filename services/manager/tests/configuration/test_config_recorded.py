"""Of slo-controller-config its sections enter the log, and nothing else that stands in the ConfigMap."""

from typing import Any

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.gateway.mirror import Seen, cleaned, next_draft
from koord_manager.domain.gateway.resources import config_map
from koordcore.protocol.manifests import shape_manifest
from koordcore.protocol.objects import ConfigMap, object_from_json
from support.histories.recording import stored

NOW = "2026-01-01T00:00:00Z"
RESOURCE = config_map("koordinator-system", "slo-controller-config", has_sections=True)
SECTION = {"colocation-config": '{"enable":true}'}


def config(section: str) -> dict[str, Any]:
    data = {"colocation-config": section, "password": "s3cr3t", "colocation-confg": "s3cr3t"}
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.mark.parametrize("section", ['{"enable":true}', '{"enable":"yes"}'])
def test_of_an_applied_configuration_taken_or_refused_only_sections_enter_the_log(section: str) -> None:
    view = ManagerView()
    applied = decide_apply(view, shape_manifest(config(section)), new_uid="u", now=NOW)

    (draft,) = applied.drafts
    event = stored(1, draft)
    assert b"enable" in event.body
    assert b"s3cr3t" not in event.body
    assert any("colocation-confg" in warning for warning in applied.warnings)
    if applied.action == "created":
        view.fold(event)
        assert decide_apply(view, shape_manifest(config(section)), new_uid="u", now=NOW).action == "unchanged"


@pytest.mark.parametrize("section", ['{"enable":true}', '{"enable":"yes"}'])
def test_of_a_mirrored_configuration_only_sections_enter_the_log_and_they_are_written_once(section: str) -> None:
    view = ManagerView()
    for number in range(3):
        seen = Seen(RESOURCE, cleaned(RESOURCE, object_from_json(config(section), ConfigMap)))
        draft = next_draft(view, seen)
        assert (draft is None) == (number > 0)
        if draft is not None:
            event = stored(1, draft)
            assert b"s3cr3t" not in event.body
            view.fold(event)


def test_another_configuration_is_kept_as_it_is() -> None:
    other = config_map("koordinator-system", "other")
    found = cleaned(other, object_from_json(config("{}"), ConfigMap))

    assert isinstance(found, ConfigMap)
    assert set(found.data) == {"colocation-config", "password", "colocation-confg"}
