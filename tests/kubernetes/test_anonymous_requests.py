"""Requests without credentials: the API server refuses them all, and our services answer the probes of a kubelet."""

from pathlib import Path

import httpx
import pytest
from koordcore.service.access.needs import Role
from support.access import AccessFolder, bearer
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import api_client

pytestmark = [pytest.mark.kubernetes]

PROBES = ("/healthz", "/livez", "/readyz")


def statuses(client: httpx.Client, *paths: str) -> dict[str, int]:
    """Return path -> status of the answer."""
    return {path: client.get(path).status_code for path in paths}


def test_the_api_server_refuses_every_request_without_credentials(plane: ControlPlane) -> None:
    paths = (*PROBES, "/version", "/api/v1/nodes", "/openapi/v3")
    with api_client(plane, plane.token("koord-manager")) as client:
        of_manager = statuses(client, *PROBES)
        del client.headers["authorization"]
        anonymous = statuses(client, *paths)

    assert anonymous == dict.fromkeys(paths, 401)
    assert of_manager == dict.fromkeys(PROBES, 200)


async def test_probes_of_the_manager_need_no_credentials_and_everything_else_does(
    installed: Installation, tmp_path: Path
) -> None:
    access = AccessFolder(tmp_path)
    token = access.add("viewer", Role.VIEW)
    await installed.start_manager("manager", "--http-access-file", str(access.write()))
    await installed.until_ready("manager")

    url = installed.urls["manager"]
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        anonymous = statuses(client, *PROBES, "/metrics", "/v1/objects/Pod")
        client.headers.update(bearer(token))
        with_token = statuses(client, "/v1/objects/Pod")

    assert anonymous == {**dict.fromkeys((*PROBES, "/metrics"), 200), "/v1/objects/Pod": 401}
    assert with_token == {"/v1/objects/Pod": 200}
