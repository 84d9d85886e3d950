"""A manager's view that folds what it decides about documents."""

from typing import Any

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import WORKLOAD
from koord_manager.domain.documents.apply import decide_apply
from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest, read_documents, shape_manifest
from koordcore.protocol.objects import Pod
from support.histories.recording import stored

NOW = "2026-01-01T00:00:00.000000Z"


class Cluster:
    def __init__(self) -> None:
        self.view = ManagerView()
        self.uids = iter(f"uid-{number}" for number in range(1000))
        self.last: list[Draft] = []

    def apply(self, text: str) -> str:
        (document,) = read_documents(text.encode())
        applied = decide_apply(self.view, shape_manifest(document), new_uid=next(self.uids), now=NOW)
        self.fold(applied.drafts)
        return applied.action

    def pod(self, name: str) -> Pod:
        """Return a pod of the namespace `default`."""
        found = self.view.pod("default", name)
        assert found is not None
        return found[1].object

    def custom(self, plural: str, name: str) -> dict[str, Any]:
        """Return a cluster-scoped custom resource."""
        found = self.view.custom(plural, "", name)
        assert found is not None
        return found.object

    def workloads(self) -> list[str]:
        """Return the uids of the queued workloads, which stay queued."""
        uids = sorted(self.view.queue.take(WORKLOAD))
        self.view.queue.add_all(WORKLOAD, uids)
        return uids

    def fold(self, drafts: list[Draft]) -> None:
        self.last = drafts
        for draft in drafts:
            self.view.fold(stored(self.view.state.position + 1, draft))

    def refusal(self, text: str) -> str:
        with pytest.raises(InvalidManifest) as caught:
            self.apply(text)
        return str(caught.value)
