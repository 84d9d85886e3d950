"""Components that follow a real node: its kubelet, and inotify events of cgroups.

Part of the composition root (`compose`).
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_agent.domain.gate_names import POD_RESOURCES_PROXY
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.host.inotify import CgroupEvent
from koord_agent.shell.host.sockets import POD_RESOURCES_SOCKET
from koord_agent.shell.kubelets.kubelet import Kubelet, KubeletAddress
from koord_agent.shell.kubelets.kubelet_states import KubeletStates
from koord_agent.shell.kubelets.pod_events import PodEvents
from koord_agent.shell.kubelets.pod_resources import PodResources
from koord_agent.shell.metrics.agent_metrics import KubeletRequests
from koord_agent.shell.node.node_agent import NodeAgent

if TYPE_CHECKING:
    from koord_agent.shell.grpc.unix_server import UnixServer


def follow_machine(shell: Shell[AgentSettings], agent: NodeAgent, change: Callable[[str], None]) -> None:
    """Add the components that follow the kubelet and the cgroups of pods on this machine.

    Args:
        shell: Settings, metrics and logger of the service.
        agent: The agent of the node.
        change: Called with the name of the node when its pods may have changed.
    """
    settings = shell.settings
    states: KubeletStates | None = None

    def listed() -> None:
        assert states is not None, "it lists only once it exists"
        agent.known = states.known
        agent.kubelet_static = states.is_static
        if agent.topology is not None:
            agent.topology.kubelet = states.configuration
            agent.topology.kubelet_entries = states.cpu_entries
        change(agent.node)

    kubelet = _kubelet(shell, agent.node)
    agent.asks_kubelet = kubelet is not None
    states = KubeletStates(
        kubelet,
        resources=PodResources(settings.var_lib_kubelet_dir, timeout_seconds=settings.kubelet_sync_timeout),
        folder=settings.var_lib_kubelet_dir,
        pods=lambda: agent.pods.values(),
        sync_seconds=settings.kubelet_sync_interval,
        asks_configuration=not settings.disable_query_kubelet_config,
        now_ms=lambda: int(shell.clock.unix() * 1000),
        monotonic=time.monotonic,
        logger=shell.log,
        changed=listed,
    )
    shell.service.add(Component(name="kubelet", run=states.run))
    shell.health.add_readiness("kubelet", states.trouble)

    def told(event: CgroupEvent) -> None:
        if event.container_id is None:
            states.sync_soon()
        change(agent.node)

    layout, version = agent.host.layout, agent.host.cgroup_version
    root = settings.cgroup_root / "cpu" if version == 1 else settings.cgroup_root
    shell.service.add(Component(name="pod-events", run=PodEvents(str(root), layout, told=told, logger=shell.log).run))


def serve_pod_resources(shell: Shell[AgentSettings], agent: NodeAgent) -> None:
    """Serve the pod-resources API with the devices of pods, if the gate PodResourcesProxy is on."""
    settings = shell.settings
    if not settings.feature_gates.enabled(POD_RESOURCES_PROXY):
        return
    # grpc takes 11 MiB, so it is loaded only where the server runs
    from koord_agent.shell.kubelets.pod_resources_proxy import PodResourcesProxy

    socket, kubelet = settings.pod_resources_proxy_path / "kubelet.sock", settings.var_lib_kubelet_dir
    proxy = PodResourcesProxy(socket, kubelet / POD_RESOURCES_SOCKET, lambda: tuple(agent.pods.values()))
    serve_socket(shell, "pod-resources-proxy", proxy)


def serve_proxy_facts(shell: Shell[AgentSettings], node: str, link: BusLink) -> None:
    """Append the facts of this machine's CRI proxy to the log, if the settings name a socket for them."""
    socket = shell.settings.criproxy_facts_socket
    if socket is None:
        return
    # grpc takes 11 MiB, so it is loaded only where the server runs
    from koord_agent.shell.bus.proxy_facts import ProxyFactServer

    serve_socket(shell, "proxy-facts", ProxyFactServer(socket, node, link))


def serve_socket(shell: Shell[AgentSettings], name: str, server: "UnixServer") -> None:
    """Add a server on a unix socket to the service."""

    async def stop() -> None:
        await asyncio.to_thread(server.stop)

    shell.service.add(Component(name=name, run=lambda: server.keep_serving(shell.log), close=stop))


def _kubelet(shell: Shell[AgentSettings], node: str) -> Kubelet | None:
    """Return the kubelet; None without an address."""
    settings = shell.settings
    if not settings.kubelet_address:
        return None
    insecure = settings.kubelet_insecure_tls
    address = KubeletAddress(
        host=settings.kubelet_address,
        port=settings.kubelet_read_only_port if insecure else settings.kubelet_port,
        insecure=insecure,
        token_file=settings.kubelet_token_file,
        timeout_seconds=settings.kubelet_sync_timeout,
    )
    return Kubelet(address, now=time.monotonic, observe=KubeletRequests(shell.metrics.registry, node).observe)
