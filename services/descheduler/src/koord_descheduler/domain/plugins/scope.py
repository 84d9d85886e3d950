"""Arguments that the native plugins share: the nodes and pods that they consider.

Source:
    descheduler spec, 1.7, 9
"""

from collections.abc import Iterator, Sequence

from koordcore.protocol.component_config import WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import (
    LabelSelectorArgs,
    Namespaces,
    PodScope,
    PodSelector,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    selector_or_all,
)
from koord_descheduler.domain.framework.plugin import PluginRun
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView


class ScopeArgs(WireModel):
    paused: StrictBool = False  # Whether the plugin does nothing
    node_selector: LabelSelectorArgs | None = None  # Nodes that the plugin looks at; None for all
    pod_selectors: tuple[PodSelector, ...] = ()  # Select the pods; none: all
    evictable_namespaces: Namespaces | None = None  # Namespaces of the pods; None for all


def check_scope(args: ScopeArgs) -> Iterator[InvalidInput]:
    yield from check_selector(args.node_selector, "nodeSelector")
    yield from check_pod_selectors(args.pod_selectors, "podSelectors")
    yield from check_namespaces(args.evictable_namespaces, "evictableNamespaces")


def check_resources(resources: Sequence[str]) -> Iterator[InvalidInput]:
    if not resources:
        yield InvalidInput("at least one resource", list(resources), "resources")
    if len(set(resources)) < len(resources):
        yield InvalidInput("resources that are each named once", list(resources), "resources")


class Scope:
    """The nodes and pods that the shared arguments of a native plugin select.

    Raises:
        InvalidInput: A selector is invalid.
    """

    def __init__(self, args: ScopeArgs) -> None:
        self.pods = PodScope(args.evictable_namespaces, any_of=args.pod_selectors)
        self._nodes = selector_or_all(args.node_selector)

    def nodes(self, run: PluginRun) -> list[NodeView]:
        return [node for node in run.nodes if self._nodes.matches(node.labels)]

    def may_leave(self, pod: PodView, run: PluginRun) -> bool:
        return self.pods.admits(pod) and run.filter(pod)
