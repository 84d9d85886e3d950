"""Facts about pods and containers that started without the values of hooks, and got them from a cycle of the agent.

Source: runtime spec, 2.1 (Reconciler), 10.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from koordcore.events.nodestate import ContainerHookApplied, HookedValue

from koord_agent.domain.hook_stages.stages import Mode
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.state.node_look import NodeLook

PLUGINS: Final = {
    "CPUQOS": "GroupIdentity",
    "CPUSetAllocator": "CPUSetAllocator",
    "BatchResource": "BatchResource",
    "CPUNormalization": "CPUNormalization",
}
"""Strategy that sets a value of hooks -> plug-in that computes it."""
_LARGEST_MEMORY: Final = 16_384
"""Largest number of remembered files of directories that are gone."""


class SetValue(NamedTuple):
    """A value that a strategy wanted for a file in this cycle, for a strategy whose values hooks also set.

    Attributes:
        file: The file.
        strategy: Name of the strategy.
        before: Text of the file before.
        after: Value that was written; None if the file had the value already.
    """

    file: CgroupFile
    strategy: str
    before: str
    after: str | None


class HookRepairs:
    """Finds values that a pod or container lacked, because no hook had set them before it started.

    Only the first value of each file counts. Later changes are not repairs.
    """

    def __init__(self) -> None:
        self._known: set[CgroupFile] = set()

    def facts(self, look: NodeLook, values: Iterable[SetValue]) -> tuple[ContainerHookApplied, ...]:
        """Return one fact for each pod or container that lacked a value when its file was seen for the first time.

        Args:
            look: Snapshot of the node.
            values: Values of this cycle.
        """
        seen: set[CgroupFile] = set()
        written: dict[str, list[HookedValue]] = {}
        for value in values:
            seen.add(value.file)
            if value.file not in self._known and value.after is not None:
                hooked = HookedValue(
                    name=value.file.resource, plugin=PLUGINS[value.strategy], new=value.after, old=value.before
                )
                written.setdefault(value.file.directory, []).append(hooked)
        self._known |= seen
        if len(self._known) > max(_LARGEST_MEMORY, 2 * len(seen)):
            self._known = seen
        return tuple(_facts(look, written)) if written else ()


def _facts(look: NodeLook, written: dict[str, list[HookedValue]]) -> Iterable[ContainerHookApplied]:
    for pod in look.pods:
        directories = {look.pod_directory(pod): ""}
        for container in pod.containers:
            if container.container_id:
                try:
                    directories[look.container_directory(pod, container.container_id)] = container.name
                except UnknownContainerId:
                    continue
        for directory, container_name in directories.items():
            if directory in written:
                yield ContainerHookApplied(
                    uid=pod.uid,
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container_name,
                    mode=Mode.RECONCILER,
                    values=written[directory],
                )
