"""Profiles on waiting pods of an API server: patched at the version that was read, again when somebody was faster."""

from collections.abc import Mapping
from typing import Any, cast

from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.shell.colocation_profiles import patch_waiting_pod
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.gateway.api import ApiResponse
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec
from support.manager.world import ManagerWorld

PROFILE = {"metadata": {"name": "late"}, "spec": {"selector": {}, "labels": {"seen": "true"}}}


class _World:
    view = ManagerWorld().view
    logger = logger("test")


class _Api:
    """One pod whose version moves once before the first patch arrives."""

    def __init__(self) -> None:
        self.version = 1
        self.patches: list[dict[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        del path, parameters, content_type
        if method == "GET":
            return ApiResponse(200, codec.encode({"metadata": {"resourceVersion": str(self.version)}, "spec": {}}))
        self.patches.append(cast("dict[str, Any]", body))
        if len(self.patches) == 1:
            self.version += 1
            return ApiResponse(409, b'{"message": "changed"}')
        return ApiResponse(200, b"{}")


async def test_a_pod_that_changed_meanwhile_is_read_and_patched_again() -> None:
    api, pod = _Api(), Pod(metadata=ObjectMeta(name="web", namespace="default"))
    assert await patch_waiting_pod(cast("ManagerContext", _World()), pod, read_profile(PROFILE), api) == 1
    metadata = {"labels": {"seen": "true"}}
    assert api.patches == [
        {"metadata": {**metadata, "resourceVersion": "1"}},
        {"metadata": {**metadata, "resourceVersion": "2"}},
    ]
