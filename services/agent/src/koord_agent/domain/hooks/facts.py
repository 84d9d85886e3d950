"""Facts about hooks: what they changed, their failures, repairs by a cycle, and the accepted facts of the CRI proxy.

Source: runtime spec, 2.1 (Reconciler), 10.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_ACTOR, HEADER_ID, AggregateRef, NewEvent, StoredEvent, name_token
from koordcore.events.nodestate import ContainerHookApplied, ContainerHookFailed, HookedValue
from koordcore.events.registry import UnreadableEvent
from koordcore.runtime_api.proxy_facts import KIND
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.call import NOTHING, HookCall, Mode
from koord_agent.domain.hooks.plugins import FailurePolicy, StageResult
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile

PLUGINS: Final = {
    "CPUQOS": "GroupIdentity",
    "CPUSetAllocator": "CPUSetAllocator",
    "BatchResource": "BatchResource",
    "CPUNormalization": "CPUNormalization",
}
"""Strategy that sets a value of hooks -> plug-in that computes it."""
_LARGEST_MEMORY: Final = 16_384
"""Largest number of remembered files of directories that are gone."""
_OF_THE_SERVER: Final = "nats-"


def facts_of(
    call: HookCall, result: StageResult, policy: FailurePolicy, *, uid: str
) -> tuple[ContainerHookApplied | ContainerHookFailed, ...]:
    """Return the facts of a call: one for each plug-in that failed, and one if the pod or container changed.

    A value that could not be decided (`HookValues.problem`) counts as a change, with the problem as its reason. If the
    call as a whole failed, the pod or container did not change. `uid` is that of the pod in the log.
    """
    pod, container = call.pod, "" if call.container is None else call.container.name
    facts: list[ContainerHookApplied | ContainerHookFailed] = [
        ContainerHookFailed(
            uid=uid,
            namespace=pod.namespace,
            pod=pod.name,
            container=container,
            stage=call.stage,
            mode=call.mode,
            plugin=one.plugin,
            policy=policy,
            error=one.error,
        )
        for one in result.done
        if one.error
    ]
    changed = () if result.failed else changed_values(call, result)
    if changed or (result.values.problem and not result.failed):
        facts.append(
            ContainerHookApplied(
                uid=uid,
                namespace=pod.namespace,
                pod=pod.name,
                container=container,
                stage=call.stage,
                mode=call.mode,
                values=list(changed),
                reason=result.values.problem,
            )
        )
    return tuple(facts)


def changed_values(call: HookCall, result: StageResult) -> tuple[HookedValue, ...]:
    """Return the values that differ from those of the request, with the plug-in whose value took effect.

    An empty text, such as a CPU list that is cleared, differs only from a value that the request has.
    """
    before = dict((NOTHING if call.container is None else call.container.before).texts())
    plugins = {name: done.plugin for done in result.done for name, _ in done.values.texts()}
    return tuple(
        HookedValue(name=name, plugin=plugins[name], new=text, old=before.get(name, ""))
        for name, text in result.values.texts()
        if before.get(name, "") != text
    )


class SetValue(NamedTuple):
    """A value that a strategy wanted for a file in this cycle, for a strategy whose values hooks also set."""

    file: CgroupFile
    strategy: str
    before: str
    after: str | None  # Value that was written; None if the file had the value already


class HookRepairs:
    """Finds values that a pod or container lacked, because no hook had set them before it started.

    Only the first value of each file counts. Later changes are not repairs. What a container lacked before the kubelet
    told its name, as after a start of the agent, is told once the name is known.
    """

    def __init__(self) -> None:
        self._known: set[CgroupFile] = set()
        self._untold: dict[str, list[HookedValue]] = {}  # by directory

    def facts(self, look: NodeLook, values: Iterable[SetValue]) -> tuple[ContainerHookApplied, ...]:
        """Return one fact for each pod or container that lacked a value when its file was seen for the first time."""
        seen: set[CgroupFile] = set()
        written = self._untold
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
        if not written:
            return ()
        without_names = tuple(look.pod_directory(pod) + "/" for pod in look.pods if not pod.containers)
        self._untold = {
            directory: lacked for directory, lacked in written.items() if directory.startswith(without_names)
        }
        return tuple(_facts(look, written))


def _facts(look: NodeLook, written: dict[str, list[HookedValue]]) -> Iterable[ContainerHookApplied]:
    for pod in look.pods:
        directories = {look.pod_directory(pod): ""}
        directories |= {directory: container.name for container, directory in look.created_containers(pod)}
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


def aggregate_of_proxy(node: str) -> AggregateRef:
    return AggregateRef(KIND, name_token(node))


def accepted_fact(message: bytes, node: str) -> NewEvent:
    """Decode the JSON of a `NewEvent` of the CRI proxy.

    Raises:
        InvalidInput: It is not a fact of this node's proxy as the catalogue describes it, or a header would be an order
            to the NATS server.
    """
    try:
        fact = codec.decode(message, NewEvent)
    except codec.DecodeError as error:
        raise InvalidInput(f"a sealed fact ({error})", message.decode(errors="replace"), "message") from error
    if fact.ref != aggregate_of_proxy(node):
        raise InvalidInput(str(aggregate_of_proxy(node)), str(fact.ref), "ref")
    if fact.expected_last < 0:
        raise InvalidInput("a position from 0", fact.expected_last, "expected_last")
    if not fact.headers.get(HEADER_ID):
        raise InvalidInput("the id of the fact", fact.headers.get(HEADER_ID), f"headers.{HEADER_ID}")
    if fact.headers.get(HEADER_ACTOR) != f"{KIND}/{node}":
        raise InvalidInput(f"{KIND}/{node}", fact.headers.get(HEADER_ACTOR), f"headers.{HEADER_ACTOR}")
    for name in fact.headers:
        if name.lower().startswith(_OF_THE_SERVER) and name != HEADER_ID:
            raise InvalidInput(f"without orders to the server, except {HEADER_ID}", name, "headers")
    stored = StoredEvent(fact.expected_last, fact.ref, fact.headers, fact.body)
    try:
        CATALOGUE.decode(stored)
    except UnreadableEvent as error:
        body = fact.body.decode(errors="replace")
        raise InvalidInput(f"a {stored.type or 'fact'} of the catalogue ({error.reason})", body, "body") from error
    return fact
