"""Facts about what hooks changed in a pod or container, and about hooks that failed.

Source: runtime spec, 10.
"""

from koordcore.events.nodestate import ContainerHookApplied, ContainerHookFailed, HookedValue

from koord_agent.domain.hook_stages.call import HookCall
from koord_agent.domain.hook_stages.pipeline import FailurePolicy, StageResult
from koord_agent.domain.hook_stages.values import NOTHING


def facts_of(
    call: HookCall, result: StageResult, policy: FailurePolicy
) -> tuple[ContainerHookApplied | ContainerHookFailed, ...]:
    """Return the facts of a call: one for each plug-in that failed, and one if the pod or container changed.

    A value that could not be decided (`HookValues.problem`) counts as a change, with the problem as its reason. If the
    call as a whole failed, the pod or container did not change.

    Args:
        call: The call.
        result: Its result.
        policy: Failure policy of the agent.
    """
    pod, container = call.pod, "" if call.container is None else call.container.name
    facts: list[ContainerHookApplied | ContainerHookFailed] = [
        ContainerHookFailed(
            uid=pod.uid,
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
                uid=pod.uid,
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
