"""Facts of the CRI proxy of a node. Aggregate: `criproxy.<name>` of the node.

Writer: the proxy. Only the proxy knows that the agent's hook server did not answer.

Source: runtime spec, 10.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class RegisteredHookServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A hook server that the CRI proxy asks what to change in pods and containers."""

    file: str  # Name of the file that registers the hook server with the proxy
    endpoint: str  # Path of the server's unix socket
    policy: str  # `Fail`: a failed hook makes the kubelet's call fail. `Ignore`: the call passes unchanged.
    hooks: list[str] = []  # Hooks that the server serves, such as `PreCreateContainer`, in the order of the file


@CATALOGUE.register(kind="criproxy")
class HookServersChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of hook servers that the proxy asks changed, or the proxy has started."""

    servers: list[RegisteredHookServer] = []  # The hook servers, in the order in which the proxy looks for a hook


@CATALOGUE.register(kind="criproxy")
class HookServerFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hook server could not be asked about a pod or container, or answered with an error."""

    uid: str  # UID of the pod
    namespace: str  # Namespace of the pod
    pod: str  # Name of the pod
    container: str = ""  # Name of the container; empty for the pod itself
    hook: str  # Hook, such as `PreCreateContainer`
    server: str  # Name of the file that registers the hook server
    policy: str  # `Fail`: a hook before a call made the call fail. `Ignore`: the call passed unchanged.
    error: str  # Error of the hook server, or of the attempt to reach it


@CATALOGUE.register(kind="criproxy")
class ProxyFactsDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The proxy dropped its oldest facts, because its queue was full, or a fact that is too large for the log."""

    facts: int  # Number of dropped facts since the last event of this type
