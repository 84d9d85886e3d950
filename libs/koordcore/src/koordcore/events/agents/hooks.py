"""Facts about runtime hooks: the values of pods and containers that the agent changed. Aggregate: `nodestate.<name>`.

Writer: the agent of the node. Source: runtime spec, 10.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class HookedValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One value that a hook changed.

    Attributes:
        name: The changed value: a resource such as `cpuset`, or an environment variable such as `env
            NVIDIA_VISIBLE_DEVICES`.
        plugin: Plug-in whose value took effect.
        new: Text of the new value.
        old: Text of the value before; empty if there was none, or if it is unknown.
    """

    name: str
    plugin: str
    new: str
    old: str = ""


@CATALOGUE.register(kind="nodestate")
class ContainerHookApplied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Hooks of the agent changed a pod or container.

    Attributes:
        uid: UID of the pod.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container; empty for the pod itself.
        stage: Stage, such as `PreCreateContainer`; empty if the reconciler changed a running container.
        mode: `Proxy`, `NRI` or `Reconciler`.
        values: Changed values.
        reason: Why a value was not set; empty if all were set.
    """

    uid: str
    namespace: str
    pod: str
    container: str = ""
    stage: str = ""
    mode: str
    values: list[HookedValue] = []
    reason: str = ""


@CATALOGUE.register(kind="nodestate")
class ContainerHookFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hook of the agent failed for a pod or container.

    Attributes:
        uid: UID of the pod.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container; empty for the pod itself.
        stage: Stage, such as `PreCreateContainer`.
        mode: `Proxy` or `NRI`.
        plugin: Plug-in that failed.
        policy: `Fail`: the caller got the error. `Ignore`: the other hooks ran.
        error: Error of the hook.
    """

    uid: str
    namespace: str
    pod: str
    container: str = ""
    stage: str
    mode: str
    plugin: str
    policy: str
    error: str


@CATALOGUE.register(kind="nodestate")
class HookRegistrationChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent registered its hook server with the CRI proxy of the node.

    Attributes:
        endpoint: Path of the hook server's unix socket on the node.
        policy: If a hook fails, the proxy lets the kubelet's call fail (`Fail`) or pass unchanged (`Ignore`).
        stages: Stages that the proxy asks the agent about, in ascending order.
    """

    endpoint: str
    policy: str
    stages: list[str]
