"""The composition root of the CRI proxy."""

import asyncio

from koordcore.retry import Backoff
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_criproxy.domain.records import Store
from koord_criproxy.domain.registration import SkipLabel
from koord_criproxy.settings import CriProxySettings
from koord_criproxy.shell.channels import open_channel
from koord_criproxy.shell.failover import RuntimeAway, check_version, recover
from koord_criproxy.shell.hook_client import HookClient
from koord_criproxy.shell.hook_folder import HookFolder
from koord_criproxy.shell.interceptor import Interceptor
from koord_criproxy.shell.metrics import ProxyMetrics
from koord_criproxy.shell.proxy_server import ProxyServer


async def compose(shell: Shell[CriProxySettings]) -> None:
    """Add the components of the proxy: registered hook servers, the runtime and its pods, the server."""
    settings = shell.settings
    runtime = open_channel(str(settings.remote_runtime_service_endpoint))
    separate = settings.remote_image_service_endpoint
    images = runtime if separate is None else open_channel(str(separate))
    if separate is not None:
        shell.log.warning("deprecated_flag", flag="remote-image-service-endpoint")
    store, hooks, folder = Store(), HookClient(), HookFolder(settings.hook_server_dir)
    metrics = ProxyMetrics(shell.metrics, store)
    interceptor = Interceptor(
        store,
        folder.servers,
        hooks,
        skip=SkipLabel(settings.runtime_hook_server_key, settings.runtime_hook_server_val),
        observe=metrics.hook_asked,
    )
    server = ProxyServer(
        settings.koord_runtimeproxy_endpoint,
        runtime=runtime,
        images=images,
        interceptor=interceptor,
        observe=metrics.called,
    )

    async def connect() -> None:
        """Wait for the runtime, and read its pods and containers. A failure ends the process."""
        backoff = Backoff()
        async with asyncio.timeout(settings.runtime_start_timeout):
            while True:
                try:
                    shell.log.info("runtime", version=await check_version(runtime))
                    await recover(runtime, store)
                    return
                except RuntimeAway as error:
                    shell.log.warning("runtime_away", error=str(error))
                    await backoff.wait()

    async def close() -> None:
        await hooks.close()
        await runtime.close()
        if images is not runtime:
            await images.close()

    shell.service.add(Component(name="hook-servers", start=folder.start, run=folder.run))
    shell.service.add(Component(name="runtime", start=connect, close=close))
    shell.service.add(Component(name="cri", start=server.start, close=server.stop))
