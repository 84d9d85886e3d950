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
    """Arguments that every native plugin has.

    Attributes:
        paused: Whether the plugin does nothing.
        node_selector: Nodes that the plugin looks at; None for all.
        pod_selectors: Select the pods; none: all.
        evictable_namespaces: Namespaces of the pods; None for all.
    """

    paused: StrictBool = False
    node_selector: LabelSelectorArgs | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    evictable_namespaces: Namespaces | None = None


def check_scope(args: ScopeArgs) -> Iterator[InvalidInput]:
    """Yield every invalid value of the shared arguments."""
    yield from check_selector(args.node_selector, "nodeSelector")
    yield from check_pod_selectors(args.pod_selectors, "podSelectors")
    yield from check_namespaces(args.evictable_namespaces, "evictableNamespaces")


def check_resources(resources: Sequence[str]) -> Iterator[InvalidInput]:
    """Yield an error if a list of resources is empty or has a resource twice."""
    if not resources:
        yield InvalidInput("at least one resource", list(resources), "resources")
    if len(set(resources)) < len(resources):
        yield InvalidInput("resources that are each named once", list(resources), "resources")


class Scope:
    """The nodes and pods that the shared arguments of a native plugin select.

    Args:
        args: The arguments.

    Raises:
        InvalidInput: A selector is invalid.
    """

    def __init__(self, args: ScopeArgs) -> None:
        self.pods = PodScope(args.evictable_namespaces, any_of=args.pod_selectors)
        self._nodes = selector_or_all(args.node_selector)

    def nodes(self, run: PluginRun) -> list[NodeView]:
        """Return the nodes of a round that the plugin looks at."""
        return [node for node in run.nodes if self._nodes.matches(node.labels)]

    def may_leave(self, pod: PodView, run: PluginRun) -> bool:
        """Return whether the plugin's arguments and the filter plugins allow to evict a pod."""
        return self.pods.admits(pod) and run.filter(pod)
