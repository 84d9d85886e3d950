"""Arguments that several plugins have: namespaces, label selectors, lists of pod selectors.

Source:
    descheduler spec, 1.7
"""

from collections.abc import Iterator

import msgspec
from koordcore.protocol.kube_struct import KubeStruct
from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement
from koordcore.protocol.selectors import EVERYTHING, Selector, compile_selector
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.view.pods import PodView


class Namespaces(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """Namespaces to include or to exclude; at most one list is not empty. Without both, all namespaces pass."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def passes(self, namespace: str) -> bool:
        """Return whether pods of a namespace are considered."""
        return namespace in self.include if self.include else namespace not in self.exclude


class StrictNamespaces(Namespaces, frozen=True, forbid_unknown_fields=True):
    """`Namespaces` in the arguments of a native plugin: unknown fields are errors."""


class StrictRequirement(LabelSelectorRequirement, forbid_unknown_fields=True):
    """A condition of a label selector in the arguments of a native plugin: unknown fields are errors."""


class StrictLabelSelector(KubeStruct, forbid_unknown_fields=True):
    """A label selector in the arguments of a native plugin: unknown fields are errors."""

    match_labels: dict[str, str] = {}
    match_expressions: list[StrictRequirement] = []

    def compiled(self) -> Selector:
        """Return the selector in the form that can match labels.

        Raises:
            InvalidInput: The selector is invalid.
        """
        return compile_selector(
            LabelSelector(match_labels=self.match_labels, match_expressions=[*self.match_expressions])
        )


class PodSelector(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named label selector for pods; without `selector` it is ignored."""

    name: str = ""
    selector: StrictLabelSelector | None = None


def check_namespaces(namespaces: Namespaces | None, path: str) -> Iterator[InvalidInput]:
    """Yield an error if namespaces are both included and excluded."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        yield InvalidInput("either include or exclude, not both", list(namespaces.include), f"{path}.include")


def check_selector(selector: LabelSelector | StrictLabelSelector | None, path: str) -> Iterator[InvalidInput]:
    """Yield an error if a label selector is invalid."""
    if selector is not None:
        try:
            selector_or_all(selector)
        except InvalidInput as error:
            yield error.at(path)


def selector_or_all(selector: LabelSelector | StrictLabelSelector | None) -> Selector:
    """Return a label selector in the form that can match labels; without one it matches everything.

    Raises:
        InvalidInput: The selector is invalid.
    """
    if selector is None:
        return EVERYTHING
    return selector.compiled() if isinstance(selector, StrictLabelSelector) else compile_selector(selector)


class PodScope:
    """Which pods the common arguments of a plugin admit.

    Args:
        namespaces: Namespaces to consider; None for all.
        selector: Label selector of the pods; None for all.
        any_of: Selectors of which at least one must match; entries without selector are ignored.

    Raises:
        InvalidInput: A selector is invalid.

    Source:
        descheduler spec, 1.7
    """

    __slots__ = ("_any_of", "_namespaces", "_selector")

    def __init__(
        self,
        namespaces: Namespaces | None = None,
        selector: LabelSelector | StrictLabelSelector | None = None,
        any_of: tuple[PodSelector, ...] = (),
    ) -> None:
        self._namespaces = namespaces if namespaces is not None and (namespaces.include or namespaces.exclude) else None
        compiled = selector_or_all(selector)
        self._selector = compiled if compiled.requirements else None
        self._any_of = [each.selector.compiled() for each in any_of if each.selector is not None]

    def admits(self, pod: PodView) -> bool:
        """Return whether a pod is in the namespaces, and is selected."""
        if self._namespaces is not None and not self._namespaces.passes(pod.namespace):
            return False
        if self._selector is not None and not self._selector.matches(pod.labels):
            return False
        return self.is_selected(pod)

    def is_selected(self, pod: PodView) -> bool:
        """Return whether one of the pod selectors matches a pod, or there are none."""
        return not self._any_of or any(selector.matches(pod.labels) for selector in self._any_of)
