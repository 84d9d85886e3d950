"""Express in CEL which pods admission decides about, so that no other pod waits for a manager.

The API server evaluates the expressions (`matchConditions`). Pods about which admission decides fail closed: without a
manager, they are refused. All other pods are sent as well, to an entry that fails open.

A pod that names us always fails closed: by the scheduler, a label, annotation or resource of the protocol, or a
priority of the protocol. So does a new pod that a colocation profile matches. CEL knows the name of a namespace and not
its labels, so the names of the matching namespaces are listed. A namespace that nobody has seen yet fails open.
`matched_entries` puts the expressions into the configuration objects.

Source:
    decision 0055; https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/ (match
    conditions)
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import plural_of
from koordcore.protocol.selectors import Operator, Requirement

from koord_manager.domain.admission.context.facts import PROFILES
from koord_manager.domain.admission.context.profiles import ColocationProfile, Match
from koord_manager.domain.admission.options import Options

SCHEDULER: Final = "koord-scheduler"
EVERY_POD: Final = "true"
NO_POD: Final = "false"
MOST_CHARACTERS: Final = 90_000
"""Maximum length of an expression; the API server refuses more than 100,000 characters."""
ABOUT_EVERY_POD: Final = ("MultiQuotaTree", "EnableQuotaAdmission", "EnablePodEnhancedValidator")
"""Gates of rules about pods that name nothing of the protocol. If one is on, every pod is concerned."""
LOWEST_PRIORITY: Final = 3000
HIGHEST_PRIORITY: Final = 9999
"""The values of the priority classes of the protocol, from free to prod, lie between them (protocol spec, 2.2)."""


_OR: Final = "\n|| "
_KEY: Final = 'key.contains("koordinator.sh/") || key.contains("scheduling.sigs.k8s.io")'
_RESOURCE: Final = r'name.contains("koordinator.sh/") || name.matches("^kubernetes[.]io/(batch|mid)-")'
_PRIORITY: Final = "object.spec.?priority.orValue(0)"


def _has_key(metadata: str) -> str:
    return f"{metadata}.orValue({{}}).exists(key, {_KEY})"


def _requests(containers: str) -> str:
    return (
        f"object.spec.?{containers}.orValue([])"
        f".exists(c, c.?resources.?requests.orValue({{}}).exists(name, {_RESOURCE}))"
    )


NEW_POD: Final = _OR.join(
    (
        f'object.spec.?schedulerName.orValue("") == {json.dumps(SCHEDULER)}',
        'object.spec.?priorityClassName.orValue("").startsWith("koord-")',
        f"({_PRIORITY} >= {LOWEST_PRIORITY} && {_PRIORITY} <= {HIGHEST_PRIORITY})",
        _has_key("object.metadata.?labels"),
        _has_key("object.metadata.?annotations"),
        _requests("containers"),
        _requests("initContainers"),
    )
)
"""Whether a new pod names anything of the protocol. Defaults are set: what has a limit has a request."""
_IS_CHANGED: Final = _OR.join(
    (
        "oldObject == null",
        *(
            f"object.metadata.?{field}.orValue({{}}) != oldObject.metadata.?{field}.orValue({{}})"
            for field in ("labels", "annotations")
        ),
    )
)
CHANGED_POD: Final = (
    f"({_IS_CHANGED})\n&& ({NEW_POD}{_OR}(oldObject != null && {_has_key('oldObject.metadata.?labels')}))"
)
"""Whether a pod that is created or changed names anything of the protocol, or did so before.

Of a change, admission judges labels and annotations, because nothing else that it judges may change. So finalizers are
removed without a manager."""


class Matched(NamedTuple):
    """Expressions for the pods that name nothing of the protocol, and about which admission decides nevertheless."""

    new: str = NO_POD  # For pods that are created, as they were submitted
    changed: str = NO_POD  # For pods that are created or changed, after all mutations


def matched_pods(
    options: Options, profiles: Iterable[ColocationProfile], namespaces: Mapping[str, Mapping[str, str]]
) -> Matched:
    """Return the expressions for pods that profiles match, or for every pod if rules are about every pod.

    If an expression were too long, it is wider: profiles without their namespaces, and at last every pod.

    Args:
        namespaces: Name of each known namespace -> its labels.
    """
    if any(options.enabled(gate) for gate in ABOUT_EVERY_POD):
        return Matched(EVERY_POD, EVERY_POD)
    found: list[_Part] = []
    for where, pods in _by_namespaces(profiles).items():
        wanted = f"({' || '.join(dict.fromkeys(_pods(each) for each in pods))})"
        names = sorted(name for name, labels in namespaces.items() if where.matches(labels))
        if where.is_everything:
            found.append(_Part("", wanted))
        elif names:
            found.append(_Part(f"request.namespace in {json.dumps(names)}", wanted))
    return Matched(_joined(found))


def _joined(parts: list["_Part"]) -> str:
    if not parts:
        return NO_POD
    excess = sum(len(part.text()) + len(_OR) for part in parts) - MOST_CHARACTERS
    for number, part in sorted(enumerate(parts), key=lambda each: -len(each[1].namespaces)):
        if excess <= 0:
            break
        parts[number] = wider = _Part("", part.pods)
        excess -= len(part.text()) - len(wider.text())
    return _OR.join(part.text() for part in parts) if excess <= 0 else EVERY_POD


class _Part(NamedTuple):
    namespaces: str  # Condition about the namespace, or "" for all
    pods: str

    def text(self) -> str:
        return f"({self.namespaces} && {self.pods})" if self.namespaces else self.pods


def changes_concern(ref: AggregateRef) -> bool:
    """Return whether a fact about this object may change the result of `matched_pods`."""
    return ref.kind == "namespace" or (ref.kind == "customspec" and plural_of(ref.id) == PROFILES)


def negated(expression: str) -> str:
    """Return the expression for all other pods."""
    return f"!({expression})"


def _by_namespaces(profiles: Iterable[ColocationProfile]) -> dict[Match, list[Match]]:
    """Return namespace selector -> pod selectors of the profiles that may match a pod."""
    found: dict[Match, list[Match]] = {}
    for profile in profiles:
        if profile.pods.valid and profile.namespaces.valid:
            found.setdefault(profile.namespaces, []).append(profile.pods)
    return found


def _pods(match: Match) -> str:
    requirements = match.selector.requirements if match.selector is not None else ()
    return "(" + " && ".join(_requirement(each) for each in requirements) + ")" if requirements else EVERY_POD


def _requirement(asked: Requirement) -> str:
    label = f"object.metadata.?labels[?{json.dumps(asked.key)}]"
    is_set, is_in = f"{label}.hasValue()", f'{label}.orValue("") in {json.dumps(sorted(asked.values))}'
    match asked.operator:
        case Operator.IN:
            return f"{is_set} && {is_in}"
        case Operator.NOT_IN:
            return f"!({is_set} && {is_in})"
        case Operator.EXISTS:
            return is_set
        case Operator.DOES_NOT_EXIST:
            return f"!{is_set}"
