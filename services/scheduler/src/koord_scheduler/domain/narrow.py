"""A look at the few nodes that come into question, without judging all others one by one.

A pod that names its node (a DaemonSet's) would otherwise need a view over all nodes of its own. Its candidates come
from the indexes (`candidates`); NodeAffinity refuses all other nodes, but those that an earlier filter refuses first.
How many these are is the same for all pods that tolerate the same, and is kept for them (`_Earlier`). So the answer,
the explanation included, is the one that a view gives (tested).

source    scheduler-core spec, 12.2 a
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from koordcore.events.explanation import PluginExclusion
from koordcore.values import codec

from koord_scheduler.domain.candidates import Candidates
from koord_scheduler.domain.columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.plugins.interface import FilterPlugin, SingleRowFilter, SingleRowScore, TolerationFilter
from koord_scheduler.domain.plugins.node_affinity import REFUSED, NodeAffinity
from koord_scheduler.domain.profile import Profile
from koord_scheduler.domain.templates import PodTemplate
from koord_scheduler.domain.views import CODE_BITS, CODE_MASK, FEASIBLE, NO_NODE, Refusals, all_rows, explained

_KEPT: Final = 64
_RING: Final = (1 << 64) - 1
_NO_BOUNDS: Final = (0, 0)

_P = TypeVar("_P")


class _Earlier:
    """What the filters before NodeAffinity say about every node, for pods that tolerate the same.

    verdict    int64 (N,), as in `views`
    counts     verdict -> number of rows
    """

    def __init__(self, nodes: NodeColumns, filters: Sequence[FilterPlugin], pod: PodTemplate) -> None:
        self._nodes = nodes
        self._filters = filters
        self._pod = pod
        self._position = -1
        self.verdict: IntArray = np.zeros(0, np.int64)
        self.counts: dict[int, int] = {}

    def refresh(self) -> None:
        """Judge again what changed since the last time."""
        nodes = self._nodes
        if self._position == nodes.shape.position and len(self.verdict) == nodes.capacity:
            return
        changed = nodes.shape.since(self._position) if len(self.verdict) == nodes.capacity else None
        self._position = nodes.shape.position
        if changed is None or 4 * len(changed) > len(nodes):
            self.verdict = np.full(nodes.capacity, NO_NODE, np.int64)
            rows = all_rows(nodes)
            self.verdict[rows] = self._judged(rows)
            values, counts = np.unique(self.verdict, return_counts=True)
            self.counts = dict(zip(row_list(values), row_list(counts), strict=True))
            return
        rows = np.array(sorted(changed), np.intp)
        after = self._judged(rows)
        for old, new in zip(row_list(self.verdict[rows]), row_list(after), strict=True):
            self.counts[old] = self.counts.get(old, 0) - 1
            self.counts[new] = self.counts.get(new, 0) + 1
        self.verdict[rows] = after

    def _judged(self, rows: Rows) -> IntArray:
        verdict = np.where(self._nodes.alive[rows], FEASIBLE, NO_NODE)
        for index, plugin in enumerate(self._filters):
            codes = plugin.filter(self._pod, self._nodes, rows)
            if codes is not None:
                verdict = np.where((verdict == FEASIBLE) & (codes != 0), codes | ((index + 1) << CODE_BITS), verdict)
        return verdict


class NarrowLooks:
    """Narrow looks for one profile."""

    def __init__(self, nodes: NodeColumns, profile: Profile) -> None:
        self.nodes = nodes
        self.filters = profile.filters
        self.scores = profile.scores
        self.single_filters = [_if_single(plugin, SingleRowFilter) for plugin in profile.filters]
        self.single_scores = [_if_single(plugin, SingleRowScore) for plugin, _ in profile.scores]
        zero = np.zeros(1, np.int64)
        self.scores_of_zero = [int(plugin.normalize(zero, *_NO_BOUNDS)[0]) for plugin, _ in profile.scores]
        self.affinity = _place_of_affinity(profile.filters)
        self._candidates = Candidates(nodes)
        self._earlier: OrderedDict[bytes, _Earlier] = OrderedDict()

    def of(self, pod: PodTemplate) -> "NarrowLook | None":
        """The look for a template as things stand; None: its candidates are not few, or not known."""
        if self.affinity is None or pod.node_name:
            return None
        rows = self._candidates.of(pod)
        return None if rows is None else NarrowLook(self, pod, rows, self._earlier_of(pod))

    def _earlier_of(self, pod: PodTemplate) -> _Earlier:
        key = codec.encode(pod.tolerations) if pod.tolerations else b""
        earlier = self._earlier.get(key)
        if earlier is None:
            earlier = self._earlier[key] = _Earlier(self.nodes, self.filters[: self.affinity], pod)
            if len(self._earlier) > _KEPT:
                self._earlier.popitem(last=False)
        earlier.refresh()
        return earlier


def _place_of_affinity(filters: Sequence[FilterPlugin]) -> int | None:
    """Where NodeAffinity stands among the filters; None: not there, or after one that reads more than tolerations."""
    for index, plugin in enumerate(filters):
        if isinstance(plugin, NodeAffinity):
            return index
        if not isinstance(plugin, TolerationFilter):
            return None
    return None


def _if_single(plugin: object, kind: type[_P]) -> _P | None:
    return plugin if isinstance(plugin, kind) else None


class NarrowLook:
    """The candidates as one kind of pod sees them; answers like `views.View`."""

    def __init__(self, looks: NarrowLooks, pod: PodTemplate, rows: list[int], earlier: _Earlier) -> None:
        self._looks = looks
        self._pod = pod
        self._earlier = earlier
        self._verdicts = dict(zip(rows, self._judged(rows), strict=True))
        self._feasible = [row for row, verdict in self._verdicts.items() if verdict == FEASIBLE]
        self._raw: list[dict[int, int] | None] | None = None

    @property
    def feasible(self) -> int:
        """How many nodes pass every filter."""
        return len(self._feasible)

    def feasible_rows(self) -> Rows:
        """The rows that pass every filter, ascending."""
        return np.array(self._feasible, np.intp)

    def exclusions(self) -> list[PluginExclusion]:
        """See `View.exclusions`."""
        counts = dict(self._earlier.counts)
        for row, verdict in self._verdicts.items():
            counts[self._earlier.verdict.item(row)] -= 1
            if verdict != FEASIBLE:
                counts[verdict] = counts.get(verdict, 0) + 1
        refused = self._refused_by_affinity()
        counts[refused] = counts.get(refused, 0) + counts.pop(FEASIBLE, 0)
        return explained(counts, self._looks.filters, self._pod, self._looks.nodes)

    def best(self, count: int, seed: int) -> list[int]:
        """The best feasible rows, best first; see `ranking`."""
        if len(self._feasible) == 1:
            return self._feasible[:]
        totals, _ = self._weighed(self._feasible)
        place = self._looks.nodes.name_hash
        order = sorted(
            zip(totals, self._feasible, strict=True), key=lambda each: (-each[0], (place.item(each[1]) - seed) & _RING)
        )
        return [row for _, row in order[:count]]

    def totals_of(self, rows: list[int]) -> list[int]:
        """Totals of some feasible rows, normalized over all feasible ones."""
        totals = dict(zip(self._feasible, self._weighed(self._feasible)[0], strict=True))
        return [totals[row] for row in rows]

    def totals_among(self, rows: Rows) -> tuple[IntArray, list[tuple[int, int]]]:
        """See `View.totals_among`."""
        totals, bounds = self._weighed(row_list(rows))
        return np.array(totals, np.int64), bounds

    def parts(self, rows: list[int], bounds: list[tuple[int, int]] | None = None) -> list[dict[str, int]]:
        """See `View.parts`."""
        bounds = self._bounds(self._feasible) if bounds is None else bounds
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._looks.scores):
            for part, score in zip(parts, self._normalized(index, rows, bounds[index]), strict=True):
                part[plugin.name] = weight * score
        return parts

    def resolvable(self) -> Rows:
        """See `Views.resolvable`; no node outside of the candidates is."""
        found: list[int] = []
        for row, verdict in self._verdicts.items():
            if verdict > FEASIBLE:
                plugin = self._looks.filters[(verdict >> CODE_BITS) - 1]
                if not plugin.unresolvable(self._pod, self._looks.nodes, np.array([row], np.intp))[0]:
                    found.append(row)
        return np.array(found, np.intp)

    def refusals(self) -> list[Refusals]:
        """See `Views.refusals`."""
        verdicts = np.where(self._earlier.verdict == FEASIBLE, self._refused_by_affinity(), self._earlier.verdict)
        for row, verdict in self._verdicts.items():
            verdicts[row] = verdict
        found: list[Refusals] = []
        for verdict in row_list(np.unique(verdicts[verdicts > FEASIBLE])):
            plugin = self._looks.filters[(verdict >> CODE_BITS) - 1]
            reason = ", ".join(plugin.reasons(self._pod, self._looks.nodes, verdict & CODE_MASK))
            rows = np.flatnonzero(verdicts == verdict)
            never = plugin.unresolvable(self._pod, self._looks.nodes, rows)
            found += [
                Refusals(plugin.name, reason, part, resolvable)
                for part, resolvable in ((rows[~never], True), (rows[never], False))
                if len(part)
            ]
        return found

    def _refused_by_affinity(self) -> int:
        assert self._looks.affinity is not None, "without NodeAffinity there is no narrow look"
        return REFUSED | (self._looks.affinity + 1) << CODE_BITS

    def _judged(self, rows: list[int]) -> list[int]:
        looks, nodes, pod = self._looks, self._looks.nodes, self._pod
        verdicts = [self._earlier.verdict.item(row) for row in rows]
        for index in range(looks.affinity or 0, len(looks.filters)):
            left = [at for at, verdict in enumerate(verdicts) if verdict == FEASIBLE]
            if not left:
                break
            single = looks.single_filters[index]
            if single is not None:
                codes = [single.code_of_row(pod, nodes, rows[at]) for at in left]
            else:
                found = looks.filters[index].filter(pod, nodes, np.array([rows[at] for at in left], np.intp))
                codes = row_list(found) if found is not None else [0] * len(left)
            for at, code in zip(left, codes, strict=True):
                if code:
                    verdicts[at] = code | (index + 1) << CODE_BITS
        return verdicts

    def _weighed(self, rows: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
        """Total of each of some feasible rows, normalized over these alone, and the bounds of that."""
        bounds = self._bounds(rows)
        totals = [0] * len(rows)
        for index, (_, weight) in enumerate(self._looks.scores):
            for at, score in enumerate(self._normalized(index, rows, bounds[index])):
                totals[at] += weight * score
        return totals, bounds

    def _bounds(self, rows: list[int]) -> list[tuple[int, int]]:
        bounds: list[tuple[int, int]] = []
        for (plugin, _), raw in zip(self._looks.scores, self._raws(), strict=True):
            among = [raw[row] for row in rows] if raw is not None and plugin.normalizes else []
            bounds.append((min(among), max(among)) if among else _NO_BOUNDS)
        return bounds

    def _normalized(self, index: int, rows: list[int], bounds: tuple[int, int]) -> list[int]:
        raw = self._raws()[index]
        if raw is None:
            return [self._looks.scores_of_zero[index]] * len(rows)
        plugin, _ = self._looks.scores[index]
        chosen = [raw[row] for row in rows]
        return row_list(plugin.normalize(np.array(chosen, np.int64), *bounds)) if plugin.normalizes else chosen

    def _raws(self) -> list[dict[int, int] | None]:
        """Raw scores of each plugin by feasible row; None: all 0."""
        if self._raw is None:
            self._raw = [self._raw_of(index) for index in range(len(self._looks.scores))]
        return self._raw

    def _raw_of(self, index: int) -> dict[int, int] | None:
        looks, nodes, pod, rows = self._looks, self._looks.nodes, self._pod, self._feasible
        single = looks.single_scores[index]
        if single is not None:
            scores = [single.score_of_row(pod, nodes, row) for row in rows]
        else:
            found = looks.scores[index][0].score(pod, nodes, np.array(rows, np.intp))
            scores = row_list(found) if found is not None else []
        return dict(zip(rows, scores, strict=True)) if any(scores) else None
