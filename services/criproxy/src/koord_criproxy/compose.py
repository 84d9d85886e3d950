"""The composition root of the CRI proxy."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from koordcore.bus.factory import Bus
from koordcore.bus.write.own_facts import OwnFactLog, OwnFacts
from koordcore.retry import Backoff
from koordcore.service.bus import hold_bus
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_criproxy.cri.calls import Interceptor
from koord_criproxy.cri.recovery import check_version, find_sandbox, listed_ids, recover
from koord_criproxy.cri.server import ProxyServer
from koord_criproxy.hooks.asking import Dispatcher, HookClient
from koord_criproxy.hooks.folder import HookFolder
from koord_criproxy.hooks.servers import SkipLabel
from koord_criproxy.metrics import ProxyMetrics
from koord_criproxy.outbox import AgentFacts, ProxyFactFile, ProxyOutbox
from koord_criproxy.records import Store
from koord_criproxy.runtime import RuntimeAway, StoreReconciler
from koord_criproxy.settings import CriProxySettings
from koord_criproxy.sockets import open_channel, refusal

Step = Callable[[], Awaitable[None]]
Log = Callable[[], Awaitable[OwnFacts]]
"""Waits until the log can be reached for the first time, and returns it over the newest connection."""


async def compose(shell: Shell[CriProxySettings]) -> None:
    settings = shell.settings
    store, hooks = Store(), HookClient()
    metrics = ProxyMetrics(shell.metrics, store)
    outbox = _add_outbox(shell, metrics) if settings.publish_facts else None
    folder = HookFolder(settings.hook_server_dir, _ignored if outbox is None else outbox.tell_servers)
    dispatcher = Dispatcher(
        folder.servers,
        hooks,
        skip=SkipLabel(settings.runtime_hook_server_key, settings.runtime_hook_server_val),
        observe=metrics.hook_asked,
        failed=_ignored if outbox is None else outbox.tell_failure,
    )
    shell.health.add_liveness("runtime", lambda: refusal(settings.remote_runtime_service_endpoint))
    shell.health.add_liveness("socket", lambda: refusal(settings.koord_runtimeproxy_endpoint))
    shell.service.add(Component(name="hook-servers", start=folder.start, run=folder.run, close=hooks.close))
    if settings.backend_runtime_mode == "Docker":
        _add_docker(shell, store, dispatcher, metrics)
    else:
        _add_cri(shell, store, dispatcher, metrics)


def _add_outbox(shell: Shell[CriProxySettings], metrics: ProxyMetrics) -> ProxyOutbox:
    """The proxy serves calls even if the log cannot be reached."""
    settings = shell.settings
    file = ProxyFactFile(settings.state_dir)
    if file.unusable:
        shell.log.warning("facts_in_memory", folder=str(settings.state_dir), reason=file.unusable)
    agent = settings.facts_socket
    log = _log_by_key(shell) if agent is None else _log_of_agent(shell, agent)

    async def close() -> None:
        outbox.store()
        file.close()

    outbox = ProxyOutbox(
        file, log, node=settings.node_name, limit=settings.outbox_facts, clock=shell.clock, logger=shell.log
    )
    metrics.watch(outbox)
    shell.service.add(Component(name="outbox", run=outbox.run, close=close))
    shell.service.add(Component(name="fact-file", run=outbox.keep))
    return outbox


def _log_by_key(shell: Shell[CriProxySettings]) -> Log:
    """Connect to the log as a user of its own."""
    connected = asyncio.Event()
    newest: list[OwnFacts] = []

    def connect(bus: Bus) -> None:
        assert bus.connection is not None, "a bus of a server has a connection"
        newest[:] = [OwnFactLog(bus.connection, bus.names, metrics=shell.metrics.bus)]
        connected.set()

    async def log() -> OwnFacts:
        await connected.wait()
        return newest[0]

    hold = partial(hold_bus, shell.settings, connect, _ignored, metrics=shell.metrics.bus, logger=shell.log)
    shell.service.add(Component(name="bus", run=hold))
    return log


def _log_of_agent(shell: Shell[CriProxySettings], socket: Path) -> Log:
    """Hand facts to the agent of the node, which appends them."""
    facts = AgentFacts(socket)

    async def log() -> OwnFacts:
        return facts

    shell.service.add(Component(name="agent", close=facts.close))
    return log


def _ignored(_: object) -> None:
    return


def _add_cri(shell: Shell[CriProxySettings], store: Store, dispatcher: Dispatcher, metrics: ProxyMetrics) -> None:
    settings = shell.settings
    socket, separate = settings.remote_runtime_service_endpoint, settings.remote_image_service_endpoint
    runtime = open_channel(str(socket))
    if separate is not None:
        shell.log.warning("deprecated_flag", flag="remote-image-service-endpoint")
    server = ProxyServer(
        settings.koord_runtimeproxy_endpoint,
        runtime=socket,
        images=socket if separate is None else separate,
        interceptor=Interceptor(store, dispatcher, partial(find_sandbox, runtime)),
        observe=metrics.called,
    )

    async def connect() -> None:
        shell.log.info("runtime", version=await check_version(runtime))
        await recover(runtime, store)

    records = StoreReconciler(store, partial(listed_ids, runtime))
    shell.service.add(Component(name="runtime", start=_patiently(shell, connect), run=records.run, close=runtime.close))
    shell.service.add(Component(name="cri", start=server.start, close=server.stop))


def _add_docker(shell: Shell[CriProxySettings], store: Store, dispatcher: Dispatcher, metrics: ProxyMetrics) -> None:
    """Its libraries are loaded only in this mode."""
    from koord_criproxy.docker.calls import DockerInterceptor
    from koord_criproxy.docker.calls import listed_ids as listed_by_dockerd
    from koord_criproxy.docker.calls import recover as recover_from_dockerd
    from koord_criproxy.docker.proxy import DockerProxy

    settings = shell.settings
    docker = settings.remote_runtime_service_endpoint
    interceptor = DockerInterceptor(store, dispatcher)
    proxy = DockerProxy(settings.koord_runtimeproxy_endpoint, docker, interceptor=interceptor, observe=metrics.called)

    async def connect() -> None:
        interceptor.cgroup_driver = await recover_from_dockerd(docker, store)
        shell.log.info("dockerd", cgroup_driver=interceptor.cgroup_driver)

    records = StoreReconciler(store, partial(listed_by_dockerd, docker))
    shell.service.add(Component(name="dockerd", start=_patiently(shell, connect), run=records.run))
    shell.service.add(Component(name="docker-api", start=proxy.start, close=proxy.stop))


def _patiently(shell: Shell[CriProxySettings], connect: Step) -> Step:
    """Repeat `connect` until the runtime answers. If it takes too long, the process ends."""

    async def step() -> None:
        backoff = Backoff()
        async with asyncio.timeout(shell.settings.runtime_start_timeout):
            while True:
                try:
                    await connect()
                    return
                except RuntimeAway as error:
                    shell.log.warning("runtime_away", error=str(error))
                    await backoff.wait()

    return step
