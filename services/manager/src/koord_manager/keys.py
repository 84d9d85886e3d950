"""The parts of `koord keys store` and `koord keys issue` that talk to an API server.

The first one stores the keys of an installation as Secrets. The second one lets the API server check tokens of agents.
"""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from koordcore.bus.setup.installation import Installation
from koordcore.bus.setup.issuing import Check
from koordcore.service.clock import SystemClock

from koord_manager.shell.gateway.api import Unreachable, connect_api
from koord_manager.shell.keys.key_secrets import KeySecrets, NotKept
from koord_manager.shell.keys.token_reviews import TokenReviews

__all__ = ["NotKept", "Unreachable", "reviewed_tokens", "store_keys"]


async def store_keys(
    installation: Installation, *, kubeconfig: Path | None, context: str, namespace: str, node_namespace: str
) -> tuple[str, ...]:
    """Bring the Secrets of an installation up to date, and return the names of those that were written.

    Args:
        installation: The installation that uses the keys. Its folder is not used; the files lie in a temporary folder
            for a moment.
        kubeconfig: Kubeconfig of the API server, or None for the service account of the pod.
        context: Context of the kubeconfig, or empty for the current one.
        namespace: Namespace of the servers and services.
        node_namespace: Namespace of the agents and CRI proxies.

    Raises:
        NotKept: The API server refused a request.
        Unreachable: The API server does not answer, or there are no credentials.
    """
    api = await connect_api(kubeconfig, context=context, qps=0, burst=1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            scratch = replace(installation, directory=Path(folder))
            secrets = KeySecrets(api=api, installation=scratch, namespace=namespace, node_namespace=node_namespace)
            return await secrets.keep(SystemClock().now())
    finally:
        await api.close()


@asynccontextmanager
async def reviewed_tokens(service_account: str, *, kubeconfig: Path | None, context: str) -> AsyncGenerator[Check]:
    """Provide the check of agents' tokens by an API server.

    Args:
        service_account: Service account of the agents, `namespace/name`.
        kubeconfig: Kubeconfig of the API server, or None for the service account of the pod.
        context: Context of the kubeconfig, or empty for the current one.

    Raises:
        Unreachable: The API server does not answer, or there are no credentials.
    """
    api = await connect_api(kubeconfig, context=context, qps=0, burst=1)
    try:
        yield TokenReviews(api, service_account).check
    finally:
        await api.close()
