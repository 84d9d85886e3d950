"""`koord bus genesis`: write a fresh log from the objects of an API server.

Source:
    event-bus spec, 9.3
"""

from pathlib import Path
from typing import Annotated

import typer

from koordctl.access.log import open_log, wait_for
from koordctl.render.output import console, fail


def begin(
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the API server; none: the pod's own.")] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the configuration.")] = "koordinator-system",
    config_name: Annotated[str, typer.Option(help="Name of the slo-controller-config.")] = "slo-controller-config",
    take_node_metrics: Annotated[bool, typer.Option(help="NodeMetric status comes from a stock agent.")] = False,
) -> None:
    """Write a fresh log from the objects of an API server: first installation, or a log that was lost.

    Stop all services first. The stream must be empty. If the command is interrupted, run it again.

    Examples:

      koord bus genesis --kubeconfig ~/.kube/config
    """
    # Imported here: no other command below `koord bus` needs the gateway.
    from koord_manager.cluster_commands import GenesisRefused, Unreachable

    try:
        wait_for(_genesis(kubeconfig, context, namespace, config_name, take_node_metrics=take_node_metrics))
    except (GenesisRefused, Unreachable) as error:
        fail(str(error))


async def _genesis(
    kubeconfig: Path | None, context: str, namespace: str, config_name: str, *, take_node_metrics: bool
) -> None:
    from koord_manager.cluster_commands import begin_anew
    from koordcore.bus.setup.manifest import GENESIS

    async def progress(sentence: str) -> None:
        console.print(sentence)

    async with open_log(principal=GENESIS.name) as log:
        await begin_anew(
            log.bus.events,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            config_name=config_name,
            take_node_metrics=take_node_metrics,
            progress=progress,
        )
