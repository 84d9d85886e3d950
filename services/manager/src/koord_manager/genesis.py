"""Assemble `koord bus genesis`: connect to an API server and write a fresh log from its objects."""

from pathlib import Path

from koordcore.ports.eventlog import EventLog
from koordcore.service.clock import SystemClock

from koord_manager.domain.gateway.resources import mirrored_resources
from koord_manager.shell.gateway.api import Unreachable, connect_api
from koord_manager.shell.gateway.genesis import GenesisRefused, Progress, genesis

__all__ = ["GenesisRefused", "Unreachable", "begin_anew"]


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
        progress: Called with sentences about the progress.

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
