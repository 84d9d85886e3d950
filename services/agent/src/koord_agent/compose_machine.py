"""Components of a real machine, for `compose`: they follow its kubelet and cgroups, and answer hooks on its sockets."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordcore.events.nodestate import HookRegistrationChanged
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_agent.domain.gate_names import BE_CPU_MANAGER, HAMI_MONITOR, POD_RESOURCES_PROXY
from koord_agent.domain.hooks.call import HookOptions, HookRules
from koord_agent.domain.hooks.plugins import FailurePolicy, enabled_plugins, registration, stages_of
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.cpu_suppress_strategy import suppresses_cpu
from koord_agent.domain.strategies.group_identity import BVT
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.bus.fact_publisher import FactPublisher
from koord_agent.shell.hooks.answering import HookAnswers
from koord_agent.shell.hooks.nri_plugin import NriPlugin
from koord_agent.shell.hooks.pod_files import LinuxDeviceFiles, LinuxPodFiles
from koord_agent.shell.hooks.pod_groups import resctrl_machine
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import POD_RESOURCES_SOCKET, host_roots
from koord_agent.shell.kubelet.kubelet import Kubelet, KubeletAddress, PodResources
from koord_agent.shell.kubelet.kubelet_states import KubeletStates
from koord_agent.shell.kubelet.pod_events import CgroupEvent, PodEvents
from koord_agent.shell.metrics.agent_metrics import HookMetrics, KubeletRequests
from koord_agent.shell.node.machine_settings import NodeSettings
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.store.audit_log import AuditSink

if TYPE_CHECKING:
    from koord_agent.shell.grpc.unix_server import UnixServer

PUBLISH_SECONDS = 1.0
REGISTER_SECONDS = 10.0


def follow_machine(shell: Shell[AgentSettings], agent: NodeAgent, change: Callable[[str], None]) -> None:
    """Follow the kubelet and the cgroups of pods. `change` gets the name of the node when its pods may have changed."""
    settings = shell.settings
    states: KubeletStates | None = None

    def listed() -> None:
        assert states is not None, "it lists only once it exists"
        agent.known = states.known
        agent.kubelet_static = states.is_static
        if states.configuration is not None:
            agent.kubelet_cgroup_root = states.configuration.cgroup_root
        topology = agent.measuring.topology
        if topology is not None:
            topology.kubelet = states.configuration
            topology.kubelet_entries = states.cpu_entries
        change(agent.node)

    kubelet = _kubelet(shell, agent.node)
    agent.asks_kubelet = kubelet is not None
    states = KubeletStates(
        kubelet,
        resources=PodResources(settings.var_lib_kubelet_dir, timeout_seconds=settings.kubelet_sync_timeout),
        folder=settings.var_lib_kubelet_dir,
        pods=lambda: agent.pods.all.values(),
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
    from koord_agent.shell.kubelet.pod_resources_proxy import PodResourcesProxy

    socket, kubelet = settings.pod_resources_proxy_path / "kubelet.sock", settings.var_lib_kubelet_dir
    proxy = PodResourcesProxy(socket, kubelet / POD_RESOURCES_SOCKET, lambda: tuple(agent.pods.all.values()))
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
    async def stop() -> None:
        await asyncio.to_thread(server.stop)

    shell.service.add(Component(name=name, run=lambda: server.keep_serving(shell.log), close=stop))


def _kubelet(shell: Shell[AgentSettings], node: str) -> Kubelet | None:
    """None without an address."""
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


def hook_answers(shell: Shell[AgentSettings], agent: NodeAgent, audit: AuditSink) -> HookAnswers:
    """They answer hook calls from a CRI proxy and over NRI."""
    settings, gates, roots = shell.settings, shell.settings.feature_gates, host_roots(shell.settings)
    host = LinuxHost(
        monotonic_ns=time.monotonic_ns, roots=roots, layout=agent.host.layout, version=agent.host.cgroup_version
    )
    kernel = NodeSettings(roots, audit=audit, read_tasks=host.read)
    resctrl = resctrl_machine(roots)
    options = HookOptions(
        unsets_quota=not settings.disable_unset_cpu_quota,
        be_by_manager=gates.enabled(BE_CPU_MANAGER),
        suppresses=suppresses_cpu(gates.enabled),
        hami_library=str(settings.hami_core_library_directory_path),
        is_gpu_monitored=gates.enabled(HAMI_MONITOR),
    )
    devices = LinuxDeviceFiles(roots.sys)

    def machine() -> HookRules:
        has_file = host.read(CgroupFile(host.layout.root, BVT)) is not None
        return HookRules(
            bvt_kernel=kernel.group_identity(has_file=has_file), options=options, devices=devices, resctrl=resctrl
        )

    return HookAnswers(
        plugins=enabled_plugins(gates.enabled, has_resctrl=resctrl is not None),
        policy=FailurePolicy(settings.runtime_hooks_plugin_failure_policy),
        look=lambda: agent.last_look,
        machine=machine,
        files=LinuxPodFiles(
            host,
            roots,
            audit=audit,
            now_ms=lambda: int(shell.clock.unix() * 1000),
            weight_line=lambda: agent.qos.weights.line,
        ),
        observe=HookMetrics(shell.metrics.registry, agent.node).observe,
    )


def publish_hook_facts(
    shell: Shell[AgentSettings], agent: NodeAgent, answers: HookAnswers, facts: FactPublisher
) -> None:
    """Publish the facts about hooks once per second. No call of a hook waits for it."""

    def publish() -> None:
        facts.publish(facts.facts(agent.node, answers.facts.take()))

    async def run() -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            publish()

    async def close() -> None:
        publish()

    shell.service.add(Component(name="hook-facts", run=run, close=close))


def serve_hooks(shell: Shell[AgentSettings], answers: HookAnswers) -> None:
    """Serve the RuntimeHookService and register it with the CRI proxy of the machine.

    The server is off if the folder of its socket does not exist. The registration is written as soon as the folder of
    registrations exists, and written again if it vanishes.
    """
    settings, gates, log = shell.settings, shell.settings.feature_gates, shell.log
    socket = settings.runtime_hooks_addr
    if not socket.parent.is_dir():
        log.info("hook_server_off", reason=f"the folder of the socket {socket} does not exist")
        return
    # grpc takes 11 MiB, so it is loaded only where the server runs
    from koord_agent.shell.hooks.hook_server import HookServer, write_registration

    server = HookServer(socket, answers, runtime=settings.default_runtime_type)
    has_resctrl = resctrl_machine(host_roots(settings)) is not None
    stages = stages_of(enabled_plugins(gates.enabled, has_resctrl=has_resctrl))
    policy = FailurePolicy(settings.runtime_hooks_failure_policy)
    endpoint = str(settings.runtime_hooks_host_endpoint)
    disabled = settings.runtime_hooks_disable_stages
    text = registration(stages, endpoint=endpoint, policy=policy, disabled=disabled)
    shell.health.add_readiness("hooks", lambda: None if server.is_serving else "the hook server does not serve yet")

    async def register() -> None:
        problem = ""
        while True:
            try:
                if write_registration(settings.runtime_hooks_config_path, text):
                    told = sorted(stage.value for stage in stages if stage.value not in disabled)
                    answers.facts.add([HookRegistrationChanged(endpoint=endpoint, policy=policy, stages=told)])
                problem = ""
            except OSError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("hooks_not_registered", reason=problem)
            await asyncio.sleep(REGISTER_SECONDS)

    log.info("hook_server", socket=str(socket), stages=sorted(stages))
    serve_socket(shell, "hook-server", server)
    shell.service.add(Component(name="hook-registration", run=register))


def answer_nri(shell: Shell[AgentSettings], answers: HookAnswers) -> None:
    """Register as an NRI plugin of the container runtime, which then asks for every new container.

    Without a runtime with NRI, the plugin tries again with back-off. No-op if the flag of the NRI mode is off.
    """
    settings = shell.settings
    if not settings.enable_nri_runtime_hook:
        return
    plugin = NriPlugin(settings, answers.answer)

    async def start() -> None:
        plugin.start()

    async def stop() -> None:
        await asyncio.to_thread(plugin.stop)

    shell.service.add(Component(name="nri", start=start, close=stop))
