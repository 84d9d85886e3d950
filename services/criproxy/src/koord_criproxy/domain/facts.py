"""Facts of the proxy about hook servers.

Source: runtime spec, 10.
"""

from collections.abc import Iterable
from typing import NamedTuple

from koordcore.events.criproxy import HookServerFailed, HookServersChanged, RegisteredHookServer

from koord_criproxy.domain.records import PodRecord
from koord_criproxy.domain.registration import FAIL, IGNORE, HookServer


class HookFailure(NamedTuple):
    """A hook server that failed.

    Attributes:
        server: The hook server.
        rpc: gRPC call, such as `PreCreateContainerHook`.
        pod: The pod that it was asked about.
        container: Name of the container; "" for the pod itself.
        error: Why it failed.
    """

    server: HookServer
    rpc: str
    pod: PodRecord
    container: str
    error: str


def policy_of(server: HookServer) -> str:
    """Return the failure policy in force: `Fail` or `Ignore`."""
    return FAIL if server.is_required else IGNORE


def hook_server_failed(failure: HookFailure) -> HookServerFailed:
    """Return the fact that a hook server failed."""
    return HookServerFailed(
        uid=failure.pod.uid,
        namespace=failure.pod.namespace,
        pod=failure.pod.name,
        container=failure.container,
        hook=failure.rpc.removesuffix("Hook"),
        server=failure.server.file,
        policy=policy_of(failure.server),
        error=failure.error,
    )


def hook_servers_changed(servers: Iterable[HookServer]) -> HookServersChanged:
    """Return the fact that these hook servers are registered, in the order in which the proxy looks for a hook."""
    return HookServersChanged(
        servers=[
            RegisteredHookServer(
                file=server.file, endpoint=server.endpoint, policy=policy_of(server), hooks=list(server.hooks)
            )
            for server in servers
        ]
    )
