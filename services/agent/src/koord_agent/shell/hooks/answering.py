"""Answer calls of hooks at once, from the last snapshot of the node: for the RuntimeHookService and for NRI.

Calls come from threads of their own and never wait for a cycle. If there is no new snapshot, or if its settings are
invalid, the last known rules answer.

Source: runtime spec, 2.2 to 2.5, 2.11, 10.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from koordcore.events.envelope import Event
from koordcore.service.telemetry.logging import logger
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.call import POD_STAGES, HookCall, HookRules, HookValues, Stage, rules_of_look
from koord_agent.domain.hooks.facts import facts_of
from koord_agent.domain.hooks.plugins import FailurePolicy, HookPlugin, StageResult, run_stage
from koord_agent.domain.node.node_look import NodeLook

MOST_FACTS: Final = 1_000
"""Largest number of facts that wait for the next publication. Above it, the oldest are dropped."""
_log: Final = logger("agent.hooks")


class PodFiles(Protocol):
    """Sets the values of a pod, whose directory exists before its sandbox starts."""

    def apply(self, call: HookCall, result: StageResult) -> None:
        """Write the values that the hooks computed at a stage of a pod to its cgroup and resctrl group.

        When the sandbox is removed (PreRemoveRunPodSandbox), only remove the resctrl group of the pod. Failures are
        logged; the reconciler repairs what is missing.
        """
        ...

    def prepare(self, values: HookValues) -> None:
        """Create the folder `host_dir` on the machine, with mode 0777, before a container is created.

        If the folder exists, it is deleted with its contents first. Without a `host_dir`, nothing happens. A path that
        is relative, or leads out of its folder, is refused. That and failures are logged.
        """
        ...


class ObserveHook(Protocol):
    def __call__(self, hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None: ...


class HookFacts:
    """Facts that wait until the agent publishes them. Threads add them; one task takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque(maxlen=MOST_FACTS)

    def add(self, facts: Sequence[Event]) -> None:
        """Above the limit, the oldest facts are dropped."""
        self._waiting.extend(facts)

    def take(self) -> list[Event]:
        """Oldest first."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


class HookAnswers:
    """Answers calls of hooks. Many threads may use it at once."""

    def __init__(
        self,
        *,
        plugins: Sequence[HookPlugin],
        policy: FailurePolicy,
        look: Callable[[], NodeLook | None],
        machine: Callable[[], HookRules],
        files: PodFiles,
        observe: ObserveHook,
    ) -> None:
        """`look` returns the last snapshot, `machine` rules that have only what belongs to the machine."""
        self.facts = HookFacts()  # Facts about answered calls
        self._plugins = tuple(plugins)
        self._policy = policy
        self._look = look
        self._machine = machine
        self._files = files
        self._observe = observe
        self._known: tuple[NodeLook | None, HookRules] | None = None
        self._problem = ""

    def answer(self, call: HookCall) -> StageResult:
        """Run the plug-ins of the stage of a call, and return their values.

        If `failed` is set, the caller returns the error.

        Unless the call failed, also write the values to the pod's files at a stage of a pod, and create the folder
        `host_dir` at a stage of a container. Facts about the call are queued in `facts`.
        """
        rules = self._rules()
        result = run_stage(self._plugins, call, rules, self._policy, clock=time.perf_counter)
        if not result.failed:
            self._write(call, result)
        for one in result.done:
            self._observe(one.plugin, call.stage, is_ok=not one.error, seconds=one.seconds)
            if one.error:
                _log.warning("hook_failed", hook=one.plugin, stage=call.stage, pod=call.pod.name, reason=one.error)
        known = rules.pods.get(call.pod.uid)
        uid = call.pod.uid if known is None else known.uid
        self.facts.add(facts_of(call, result, self._policy, uid=uid))
        return result

    def _write(self, call: HookCall, result: StageResult) -> None:
        """An error is logged: the reconciler repairs the files, and the call succeeds."""
        try:
            if call.stage in POD_STAGES:
                self._files.apply(call, result)
            else:
                self._files.prepare(result.values)
        except Exception as error:  # noqa: BLE001 - values of files never keep a pod from starting
            _log.error("hook_files_failed", stage=call.stage, pod=call.pod.name, exc_info=error)

    def _rules(self) -> HookRules:
        """Rules are parsed once per snapshot."""
        look, known = self._look(), self._known
        if known is not None and known[0] is look:
            return known[1]
        machine = self._machine()
        try:
            rules = machine if look is None else rules_of_look(look, machine)
        except InvalidInput as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("hook_rules_kept", reason=self._problem)
            rules = machine if known is None else known[1]
        self._known = (look, rules)
        return rules
