"""What commands of `koord` do at an API server: `bus genesis`, `doctor`, `keys store` and `keys issue`.

`koordctl` only parses their options.
"""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from koordcore.bus.setup.installation import Installation
from koordcore.bus.setup.issuing import Check
from koordcore.ports.eventlog import EventLog
from koordcore.service.clock import SystemClock
from koordcore.values import codec

from koord_manager.domain.gateway.resources import mirrored_resources
from koord_manager.shell.gateway.api import Unreachable, connect_api
from koord_manager.shell.gateway.genesis import GenesisRefused, Progress, genesis
from koord_manager.shell.installation_keys import KeySecrets, NotKept, TokenReviews

__all__ = [
    "GenesisRefused",
    "Installed",
    "NotKept",
    "Unreachable",
    "begin_anew",
    "installed",
    "reviewed_tokens",
    "store_keys",
]


async def begin_anew(
    log: EventLog,
    *,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    config_name: str,
    take_node_metrics: bool,
    progress: Progress,
) -> int:
    """Connect to an API server, write the first facts of a log from its objects, and return their number.

    Args:
        log: An empty log, or the beginning of an interrupted genesis.
        kubeconfig: Kubeconfig of the API server, or None for the service account of the pod.
        context: Context of the kubeconfig, or empty for the current one.
        namespace: Namespace of slo-controller-config and of the ConfigMap with the cluster's epoch.
        config_name: Name of slo-controller-config.
        take_node_metrics: Whether Koordinator's own node agent writes the status of NodeMetric objects.

    Raises:
        GenesisRefused: The log is not empty, or the API server refused a request.
        Unreachable: The API server does not answer, or there are no credentials.
    """
    resources = mirrored_resources(slo_config=(namespace, config_name), take_node_metrics=take_node_metrics)
    api = await connect_api(kubeconfig, context=context, qps=0, burst=1)
    try:
        return await genesis(
            api, log, resources, SystemClock(), namespace=namespace, actor="koord/genesis", progress=progress
        )
    finally:
        await api.close()


_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Installed:
    """Objects at an API server, as JSON."""

    policies: list[dict[str, Any]]  # NetworkPolicies of the manager's namespace
    definitions: list[dict[str, Any]]  # All custom resource definitions
    schedules: list[dict[str, Any]]  # CronJobs of the manager's namespace
    jobs: list[dict[str, Any]]


async def installed(*, kubeconfig: Path, context: str, namespace: str) -> Installed:
    """Return what is installed at an API server. `namespace`: that of the manager; `context`: "" for the current one.

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
