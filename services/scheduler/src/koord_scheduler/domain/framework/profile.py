"""The profile: the plugins for one scheduler name with their weights. Its hash is the policy version of decisions."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from koordcore.values import codec

from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.node_points import FilterPlugin, ScorePlugin
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Plugin

P = TypeVar("P")
Wrap = Callable[[ExtensionPoint[Any], Plugin], Plugin]
"""A function that replaces a plugin at an extension point, to measure its calls."""


class PluginLists:
    """The plugins of a profile, as one list per extension point, in the order in which the scheduler calls them."""

    __slots__ = ("_lists", "is_plain", "sees_otherwise")

    def __init__(self, lists: Mapping[ExtensionPoint[Any], Iterable[Plugin]]) -> None:
        self._lists: dict[ExtensionPoint[Any], tuple[Any, ...]] = {
            point: tuple(lists.get(point, ()))[: 1 if point.is_single else None] for point in points.EXTENSION_POINTS
        }
        # Whether plugins may change the pod or the nodes before filters run, so that a cycle may find room where the
        # unchanged pod and nodes have none.
        self.sees_otherwise = bool(self._lists[points.BEFORE_PRE_FILTER] or self._lists[points.BEFORE_FILTER])
        changing = (
            points.BEFORE_PRE_FILTER,
            points.AFTER_PRE_FILTER,
            points.FIND_ONE_NODE,
            points.BEFORE_FILTER,
            points.BEFORE_SCORE,
        )
        # True if no plugin has the extension points BeforePreFilter, AfterPreFilter, FindOneNode, BeforeFilter or
        # BeforeScore. Filters then run directly after PreFilter.
        self.is_plain = not any(self._lists[point] for point in changing)

    def at(self, point: ExtensionPoint[P]) -> tuple[P, ...]:
        """In the order of their calls."""
        return self._lists[point]

    def one_at(self, point: ExtensionPoint[P]) -> P | None:
        """The first plugin, or None."""
        found = self._lists[point]
        return found[0] if found else None

    def without(self, unconcerned: Iterable[Plugin]) -> "PluginLists":
        """Return copies of the lists without the given plugins. The lists themselves do not change."""
        left_out = {id(plugin) for plugin in unconcerned}
        lists = {point: [each for each in found if id(each) not in left_out] for point, found in self._lists.items()}
        return PluginLists(lists)

    def wrapped(self, wrap: Wrap) -> "PluginLists":
        """Return copies of the lists with each plugin at a timed extension point replaced by `wrap(point, plugin)`.
        Plugins at other extension points stay as they are.
        """
        return PluginLists(
            {
                point: [wrap(point, plugin) for plugin in found] if point.timed else found
                for point, found in self._lists.items()
            }
        )


class Profile:
    """The plugins that schedule the pods of one scheduler name, with their order, weights and settings. `concerned`:
    the plugins with the extension point Concerns, each with its bit of `PodClass.concerned`.
    """

    def __init__(
        self,
        plugins: PluginLists,
        weights: Mapping[str, int],
        *,
        settings: object,
        concerned: Iterable[tuple[Plugin, int]] = (),
        scheduler_name: str = "koord-scheduler",
        percentage_of_nodes_to_score: int = 0,
    ) -> None:
        # The plugins by extension point. Filters that read only the shape of nodes come first, so that they refuse
        # first.
        self.plugins = plugins
        self.filters: tuple[FilterPlugin, ...] = plugins.at(points.FILTER)  # Filters that depend on one node alone
        # Scores that depend on one node alone, with their weights.
        self.scores: tuple[tuple[ScorePlugin, int], ...] = tuple(
            (plugin, weights[plugin.name]) for plugin in plugins.at(points.SCORE)
        )
        # Scores that depend on pods on other nodes, with their weights.
        self.cross_node_scores = tuple((plugin, weights[plugin.name]) for plugin in plugins.at(points.CROSS_NODE_SCORE))
        weighted = {plugin.name: weight for plugin, weight in (*self.scores, *self.cross_node_scores)}
        # Names of plugins whose weight exceeds the sum of all other weights.
        self.outranking = frozenset(name for name, weight in weighted.items() if 2 * weight > sum(weighted.values()))
        self.settings = settings  # Everything that distinguishes this profile from another, as JSON values
        self._concerned = tuple(concerned)
        self._concerning: dict[int, PluginLists] = {}
        self.scheduler_name = scheduler_name  # The profile schedules pods with this scheduler name
        # 0: all nodes are examined, unless random relaxation is on (`engine.sampled`).
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score

    def concerning(self, concerned: int) -> PluginLists:
        """Return the plugins that apply to pods of a class: all but those whose `concerns` returned False for them.
        `concerned`: `PodClass.concerned` of the class, one bit for each plugin with the extension point Concerns.
        """
        found = self._concerning.get(concerned)
        if found is None:
            left_out = [plugin for plugin, bit in self._concerned if not concerned & bit]
            found = self._concerning[concerned] = self.plugins.without(left_out) if left_out else self.plugins
        return found

    def policy_version(self, *, random_relaxation: bool = False) -> str:
        """Return a hash of plugins, weights and settings, as 16 hexadecimal digits. Placements contain it.
        `random_relaxation`: whether random relaxation is on, which changes decisions.
        """
        description: dict[str, object] = {
            "filters": [plugin.name for plugin in (*self.filters, *self.plugins.at(points.CROSS_NODE_FILTER))],
            "scores": [[plugin.name, weight] for plugin, weight in (*self.scores, *self.cross_node_scores)],
            "settings": self.settings,
        }
        if random_relaxation:
            description["randomRelaxation"] = True
        return blake2b(codec.encode_canonical(description), digest_size=8).hexdigest()
