"""Facts of the CRI proxy of a node. Aggregate: `criproxy.<name>` of the node.

Writer: the proxy. Only the proxy knows that the agent's hook server did not answer.

Source: runtime spec, 10.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class RegisteredHookServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A hook server that the CRI proxy asks what to change in pods and containers.

    Attributes:
        file: Name of the file that registers the hook server with the proxy.
        endpoint: Path of the server's unix socket.
        policy: `Fail`: a failed hook makes the kubelet's call fail. `Ignore`: the call passes unchanged.
        hooks: Hooks that the server serves, such as `PreCreateContainer`, in the order of the file.
    """

    file: str
    endpoint: str
    policy: str
    hooks: list[str] = []


@CATALOGUE.register(kind="criproxy")
class HookServersChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of hook servers that the proxy asks changed, or the proxy has started.

    Attributes:
        servers: The hook servers, in the order in which the proxy looks for a hook.
    """

    servers: list[RegisteredHookServer] = []


@CATALOGUE.register(kind="criproxy")
class HookServerFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hook server could not be asked about a pod or container, or answered with an error.

    Attributes:
        uid: UID of the pod.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container; empty for the pod itself.
        hook: Hook, such as `PreCreateContainer`.
        server: Name of the file that registers the hook server.
        policy: `Fail`: a hook before a call made the call fail. `Ignore`: the call passed unchanged.
        error: Error of the hook server, or of the attempt to reach it.
    """

    uid: str
    namespace: str
    pod: str
    container: str = ""
    hook: str
    server: str
    policy: str
    error: str


@CATALOGUE.register(kind="criproxy")
class ProxyFactsDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The proxy dropped its oldest facts, because its queue was full, or a fact that is too large for the log.

    Attributes:
        facts: Number of dropped facts since the last event of this type.
    """

    facts: int
