"""Read the NetworkPolicies of an installation for `koord doctor`."""

from pathlib import Path
from typing import Any

from koordcore.values import codec

from koord_manager.shell.gateway.api import Unreachable, connect_api

__all__ = ["Unreachable", "network_policies"]


async def network_policies(*, kubeconfig: Path, context: str, namespace: str) -> list[dict[str, Any]]:
    """Return the NetworkPolicies of a namespace, as JSON.

    Args:
        kubeconfig: Kubeconfig of the API server.
        context: Context of the kubeconfig, or empty for the current one.
        namespace: Namespace of the manager.

    Raises:
        Unreachable: The API server does not answer or refuses the request, or there are no credentials.
    """
    api = await connect_api(kubeconfig, context=context, qps=0, burst=1)
    try:
        answer = await api.request("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
    finally:
        await api.close()
    if not answer.ok:
        raise Unreachable(f"the API server refused to list NetworkPolicies: {answer.message()}")
    return codec.decode(answer.body, dict[str, Any])["items"]
