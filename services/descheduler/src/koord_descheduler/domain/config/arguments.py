"""Arguments that several plugins have: namespaces, label selectors, lists of pod selectors, a priority threshold.

Evictors select nodes by label selectors as one line of text: `a=b,c in (d,e),f,!g`. The models check types. Each
plugin has a function that checks values; when it is called depends on the plugin (descheduler spec, 3.3).

Source:
    descheduler spec, 1.7
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar, cast

from koordcore.protocol.component_config import Text, WireModel, read, wire_name
from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement, without_nulls
from koordcore.protocol.selectors import EVERYTHING, Selector, compile_selector
from koordcore.values.invalid import InvalidInput
from pydantic import StrictInt

from koord_descheduler.domain.view.pods import SYSTEM_CRITICAL, PodView

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
"""Kinds of node affinity, as arguments name them."""
M = TypeVar("M", bound=WireModel)


def native_args(raw: Mapping[str, object], kind: type[M]) -> M:
    """Return the arguments of a native plugin, with defaults. `null` counts as absent, an unknown field is an error.

    As in Koordinator, an empty text or list counts as absent if the default of the field is a text or a list that is
    not empty. See descheduler spec, 3.2 (1).

    Raises:
        InvalidConfiguration: Fields are unknown or have wrong types; it has all problems with their paths.
    """
    given = cast("dict[str, object]", without_nulls(raw))
    for name, field in kind.model_fields.items():
        default: object = field.default
        if bool(default) and isinstance(default, str | tuple) and given.get(wire_name(name)) in ("", []):
            del given[wire_name(name)]
    return read(kind, given, "")


def upstream_args(raw: Mapping[str, object], kind: type[M]) -> M:
    """Return the arguments of an upstream plugin, with defaults. `null` counts as absent, unknown fields are ignored.

    See descheduler spec, 3.2 (4).

    Raises:
        InvalidConfiguration: Fields have wrong types; it has all problems with their paths.
    """
    return read(kind, without_nulls(raw), "", only_known=False)


class Namespaces(WireModel):
    """Namespaces to include or to exclude; at most one list is not empty. If both are empty, all namespaces pass."""

    include: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()

    def passes(self, namespace: str) -> bool:
        return namespace in self.include if self.include else namespace not in self.exclude


class Requirement(WireModel):
    key: Text
    operator: Text
    values: tuple[Text, ...] = ()


class LabelSelectorArgs(WireModel):
    """A label selector in arguments: `match_labels` and `match_expressions` must all match."""

    match_labels: Mapping[Text, Text] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def compiled(self) -> Selector:
        """Raises InvalidInput: the selector is invalid. The error has the path inside the selector."""
        expressions = [
            LabelSelectorRequirement(key=each.key, operator=each.operator, values=[*each.values])
            for each in self.match_expressions
        ]
        return compile_selector(LabelSelector(match_labels=dict(self.match_labels), match_expressions=expressions))


class PodSelector(WireModel):
    """A named label selector for pods; without `selector` it is ignored."""

    name: Text = ""
    selector: LabelSelectorArgs | None = None


class PriorityThreshold(WireModel):
    """Priority value from which on pods are not evicted, as a value or as the name of a PriorityClass."""

    value: StrictInt | None = None
    name: Text = ""

    def resolved(self, priority_classes: Mapping[str, int]) -> int | None:
        """Return the threshold as a value; None if neither value nor name is given (descheduler spec, 6.1).

        `priority_classes`: name of a PriorityClass -> its value.

        Raises:
            InvalidInput: There is no such PriorityClass, or the value exceeds that of critical pods.
        """
        value, path = self.value, "priorityThreshold.value"
        if value is None and self.name:
            path = "priorityThreshold.name"
            if self.name not in priority_classes:
                raise InvalidInput("the name of a PriorityClass", self.name, path)
            value = priority_classes[self.name]
        if value is not None and value > SYSTEM_CRITICAL:
            raise InvalidInput(f"at most {SYSTEM_CRITICAL}", value, path)
        return value


def check_threshold(threshold: PriorityThreshold | None) -> Iterator[InvalidInput]:
    """Yield an error if a threshold has both a value and a name, or a value above that of critical pods."""
    if threshold is None or threshold.value is None:
        return
    if threshold.name:
        yield InvalidInput("absent with a value", threshold.name, "priorityThreshold.name")
    if threshold.value > SYSTEM_CRITICAL:
        yield InvalidInput(f"at most {SYSTEM_CRITICAL}", threshold.value, "priorityThreshold.value")


def check_choice(text: str, choices: Iterable[str], path: str) -> Iterator[InvalidInput]:
    """Yield an error if a text is none of the choices."""
    allowed = [*choices]
    if text not in allowed:
        yield InvalidInput(f"one of {', '.join(allowed)}", text, path)


def check_namespaces(namespaces: Namespaces | None, path: str) -> Iterator[InvalidInput]:
    if namespaces is not None and namespaces.include and namespaces.exclude:
        yield InvalidInput("either include or exclude, not both", list(namespaces.include), f"{path}.include")


def check_selector(selector: LabelSelectorArgs | None, path: str) -> Iterator[InvalidInput]:
    if selector is not None:
        try:
            selector.compiled()
        except InvalidInput as error:
            yield error.at(path)


def check_pod_selectors(selectors: tuple[PodSelector, ...], path: str) -> Iterator[InvalidInput]:
    """`path`: that of the list in the configuration, for example `podSelectors`."""
    for index, each in enumerate(selectors):
        yield from check_selector(each.selector, f"{path}[{index}].selector")


class PodScopeArgs(WireModel):
    """Arguments that most upstream plugins have. None: all pods."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelectorArgs | None = None


def check_pods(args: PodScopeArgs) -> Iterator[InvalidInput]:
    yield from check_namespaces(args.namespaces, "namespaces")
    yield from check_selector(args.label_selector, "labelSelector")


def selector_or_all(selector: LabelSelectorArgs | None) -> Selector:
    """None matches everything.

    Raises:
        InvalidInput: The selector is invalid.
    """
    return EVERYTHING if selector is None else selector.compiled()


class PodScope:
    """The pods that the common arguments of a plugin select. Entries of `any_of` without selector are ignored.

    Raises:
        InvalidInput: A selector is invalid.
    """

    __slots__ = ("_any_of", "_namespaces", "_selector")

    def __init__(
        self,
        namespaces: Namespaces | None = None,
        selector: LabelSelectorArgs | None = None,
        any_of: tuple[PodSelector, ...] = (),
    ) -> None:
        self._namespaces = namespaces if namespaces is not None and (namespaces.include or namespaces.exclude) else None
        compiled = selector_or_all(selector)
        self._selector = compiled if compiled.requirements else None
        self._any_of = [each.selector.compiled() for each in any_of if each.selector is not None]

    def admits(self, pod: PodView) -> bool:
        """Whether a pod is in the namespaces, and the label selector and one of `any_of` match it."""
        if self._namespaces is not None and not self._namespaces.passes(pod.namespace):
            return False
        if self._selector is not None and not self._selector.matches(pod.labels):
            return False
        return self.is_selected(pod)

    def is_selected(self, pod: PodView) -> bool:
        """Whether at least one of the selectors in `any_of` matches a pod; True if there are none."""
        return not self._any_of or any(selector.matches(pod.labels) for selector in self._any_of)


_TERM: Final = re.compile(
    r"\s*(?:"
    r"!\s*(?P<absent>[^\s=!,()<>]+)"
    r"|(?P<key>[^\s=!,()<>]+)\s*(?:(?P<equal>==?|!=)\s*(?P<value>[^\s=!,()<>]*)"
    r"|(?P<set>\bin|\bnotin)\s*\((?P<values>[^()]*)\))?"
    r")\s*(?:,|$)"
)
_RULE: Final = "a label selector such as a=b,c!=d,e in (f,g),h,!i"


def parse_selector_text(text: str) -> Selector:
    """An empty text matches everything.

    Raises:
        InvalidInput: The text has another form, or a key or value is not valid in labels.
    """
    requirements: list[LabelSelectorRequirement] = []
    position = 0
    while text.strip() and position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise InvalidInput(_RULE, text)
        requirements.append(_requirement(match))
        position = match.end()
    if text.rstrip().endswith(","):
        raise InvalidInput(_RULE, text)
    try:
        return compile_selector(LabelSelector(match_expressions=requirements))
    except InvalidInput as error:
        raise InvalidInput(f"{_RULE} ({error.rule})", error.value) from error


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    if match["absent"]:
        return LabelSelectorRequirement(key=match["absent"], operator="DoesNotExist")
    if match["equal"]:
        return LabelSelectorRequirement(
            key=match["key"], operator="NotIn" if match["equal"] == "!=" else "In", values=[match["value"]]
        )
    if match["set"]:
        values = [each.strip() for each in match["values"].split(",")]
        return LabelSelectorRequirement(
            key=match["key"], operator="In" if match["set"] == "in" else "NotIn", values=values
        )
    return LabelSelectorRequirement(key=match["key"], operator="Exists")
