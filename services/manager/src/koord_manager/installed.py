"""Read what is installed at an API server for `koord doctor`: NetworkPolicies, definitions, nightly jobs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordcore.values import codec

from koord_manager.shell.gateway.api import Unreachable, connect_api

__all__ = ["Installed", "Unreachable", "installed"]

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Installed:
    """Objects at an API server, as JSON.

    Attributes:
        policies: NetworkPolicies of the manager's namespace.
        definitions: All custom resource definitions.
        schedules: CronJobs of the manager's namespace.
        jobs: Jobs of the manager's namespace.
    """

    policies: list[dict[str, Any]]
    definitions: list[dict[str, Any]]
    schedules: list[dict[str, Any]]
    jobs: list[dict[str, Any]]


async def installed(*, kubeconfig: Path, context: str, namespace: str) -> Installed:
    """Return what is installed at an API server.

    Args:
        kubeconfig: Kubeconfig of the API server.
        context: Context of the kubeconfig, or empty for the current one.
        namespace: Namespace of the manager.

    Raises:
        Unreachable: The API server does not answer or refuses the request, or there are no credentials.
    """
    api = await connect_api(kubeconfig, context=context, qps=0, burst=1)

    async def listed(path: str) -> list[dict[str, Any]]:
        answer = await api.request("GET", path)
        if not answer.ok:
            raise Unreachable(f"the API server refused to list {path.rpartition('/')[2]}: {answer.message()}")
        return codec.decode(answer.body, dict[str, Any])["items"]

    try:
        return Installed(
            await listed(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
            await listed(_DEFINITIONS),
            await listed(f"/apis/batch/v1/namespaces/{namespace}/cronjobs"),
            await listed(f"/apis/batch/v1/namespaces/{namespace}/jobs"),
        )
    finally:
        await api.close()
