"""Run the plug-ins of a stage, in order, under the failure policy of the agent.

Source: runtime spec, 2.2, 2.7.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.failure import failure
from koord_agent.domain.gate_names import RESCTRL
from koord_agent.domain.hook_stages.call import HookCall, HookRules
from koord_agent.domain.hook_stages.plugins import PLUGINS, HookPlugin
from koord_agent.domain.hook_stages.stages import Stage
from koord_agent.domain.hook_stages.values import NOTHING, HookValues


class FailurePolicy(StrEnum):
    """Effect of a hook that fails. IGNORE: the other hooks run. FAIL: the call ends with the error."""

    IGNORE = "Ignore"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class HookDone:
    """Result of one plug-in at a stage.

    Attributes:
        plugin: Name of the plug-in.
        values: Values that the plug-in set.
        error: Why it failed; "" for success. A plug-in that fails sets nothing.
        seconds: How long it ran, by the clock of the caller.
    """

    plugin: str
    values: HookValues
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage.

    Attributes:
        values: Values that all plug-ins together set. If `failed` is set, they must not be used.
        done: Result of each plug-in that ran, in order.
        failed: Name of the plug-in whose failure ended the call; "" for none. Only the policy FAIL ends a call.
    """

    values: HookValues
    done: tuple[HookDone, ...]
    failed: str = ""

    @property
    def error(self) -> str:
        """Error text of the plug-in that ended the call, for the caller; "" if the call succeeded."""
        return next((f"{one.plugin}: {one.error}" for one in self.done if one.plugin == self.failed), "")


def enabled_plugins(is_enabled: Callable[[str], bool], *, has_resctrl: bool = False) -> tuple[HookPlugin, ...]:
    """Return the plug-ins that run, in order.

    Args:
        is_enabled: Returns whether a feature gate is on.
        has_resctrl: Whether the machine can limit caches and memory bandwidth. If not, the plug-in Resctrl is left out.
    """
    return tuple(one for one in PLUGINS if is_enabled(one.gate) and (one.gate != RESCTRL or has_resctrl))


def stages_of(plugins: Iterable[HookPlugin]) -> frozenset[Stage]:
    """Return the stages at which at least one plug-in runs."""
    return frozenset(stage for plugin in plugins for stage in plugin.stages)


def run_stage(
    plugins: Sequence[HookPlugin],
    call: HookCall,
    rules: HookRules,
    policy: FailurePolicy,
    *,
    clock: Callable[[], float] = lambda: 0.0,
) -> StageResult:
    """Run the plug-ins of the stage of a call.

    Args:
        plugins: Plug-ins that run, in order.
        call: The call.
        rules: Rules of the node, from the agent's last snapshot.
        policy: Whether a plug-in that fails ends the call.
        clock: Returns the time in seconds, to measure the plug-ins.

    Returns:
        The values of all plug-ins that did not fail. A later plug-in overrides the values of an earlier one. If a
        plug-in fails under the policy FAIL, the plug-ins after it do not run, and `failed` names it.
    """
    values, done = NOTHING, list[HookDone]()
    for plugin in plugins:
        if call.stage not in plugin.stages:
            continue
        began = clock()
        try:
            decided = plugin.decide(call, rules)
        except Exception as error:  # noqa: BLE001 - under the policy Ignore, no plug-in keeps a pod from starting
            reason = str(error) if isinstance(error, InvalidInput) else failure("", error)
            done.append(HookDone(plugin.name, NOTHING, reason, clock() - began))
            if policy is FailurePolicy.FAIL:
                return StageResult(values, tuple(done), failed=plugin.name)
            continue
        done.append(HookDone(plugin.name, decided, seconds=clock() - began))
        values = values.then(decided)
    return StageResult(values, tuple(done))
