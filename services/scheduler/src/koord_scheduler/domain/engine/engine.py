"""Finds the best feasible node for one pod, or explains why there is none.

    view              cached results of plugins about each node alone, per class of pods
    families          the same for many classes that differ only in amounts
    candidate_view    the same for pods with few candidate nodes, evaluated each time
    sampled           some of the nodes, for profiles that sample
    cross_node        filters and scores that depend on pods elsewhere, called each time, about feasible nodes only

The engine is pure. Its caches never change an outcome. Source: scheduler-core spec, 1 (steps 6 to 9), 1.2, 12.2, 13.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from koordcore.events.envelope import BasedOn
from koordcore.events.pod import NodeScore, PlacementExplanation, PluginExclusion

from koord_scheduler.domain.cluster.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list, text_hash
from koord_scheduler.domain.engine.answers import Answers, Refusals, merged
from koord_scheduler.domain.engine.candidate_view import CandidateView, CandidateViews
from koord_scheduler.domain.engine.cross_node import Choice, CrossNodeFilters, best_by_domain
from koord_scheduler.domain.engine.decision import (
    ALL_ON,
    UNRESTRICTED,
    Decision,
    Optimisations,
    Placed,
    Restriction,
    ScoredAs,
    Unschedulable,
    fit_error,
)
from koord_scheduler.domain.engine.families import Families
from koord_scheduler.domain.engine.ranking import best_of
from koord_scheduler.domain.engine.sampled import SampledView, Sampling, search
from koord_scheduler.domain.engine.view import View, Views
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_FILTER, CROSS_NODE_SCORE
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.profile import Profile

TOP_SCORES: Final = 3
NOMINATED_PODS: Final = "NominatedPods"
BARRED_REASON: Final = "node(s) have no room beside the pods nominated to them"
"""Reason in explanations for nodes that are promised to nominated pods (scheduler-core spec, 1.3)."""
LEFT_OUT_REASON: Final = "node(s) were left out before scoring"
NODE_HEALTH: Final = "NodeHealth"
"""Name of the part of a total by which the weight of an unhealthy node reduces it, in explanations."""
_FILTERS_KEPT: Final = 1024
_MANY: Final = 1 << 20


@dataclass(slots=True)
class _Sifted:
    """Feasible rows after cross-node filters and restrictions, and what these refused."""

    rows: Rows
    exclusions: list[PluginExclusion] = field(default_factory=list[PluginExclusion])

    def exclude(self, plugin: str, reason: str, count: int) -> None:
        """Append to `exclusions` that `plugin` refused `count` nodes. Equal entries are not summed. No-op for 0."""
        if count:
            self.exclusions.append(PluginExclusion(plugin=plugin, excluded=count, reasons={reason: count}))


class Engine:
    """Filters and scores nodes with the plugins of one profile. Explanations name the `top_scores` best nodes."""

    def __init__(self, nodes: NodeColumns, profile: Profile, optimisations: Optimisations = ALL_ON) -> None:
        self.nodes = nodes
        self.profile = profile
        self._optimisations = optimisations
        self._keeps_cross_node = optimisations.equivalence_classes
        self.forget()
        relaxes = optimisations.random_relaxation
        share = profile.percentage_of_nodes_to_score
        sampling = Sampling(percentage_of_nodes_to_score=share, random_relaxation=relaxes)
        self._sampling = sampling if sampling.wanted(_MANY) < _MANY else None
        self.policy_version = profile.policy_version(random_relaxation=relaxes)
        self.top_scores = TOP_SCORES

    def forget(self) -> None:
        """Drop all caches. It is called after a plugin raised an exception: the caches may be incomplete."""
        nodes, profile, keeps = self.nodes, self.profile, self._optimisations
        self.answers = Answers(nodes, profile, keep=keeps.equivalence_classes)
        self.views = Views(self.answers, keep=keeps.equivalence_classes)
        self._candidate_views = CandidateViews(nodes, profile, self.answers.asked) if keeps.dynamic_index else None
        least_family = keeps.least_family if keeps.equivalence_classes else 0
        self._families = Families(self.answers, self._candidate_views, least_family)
        self._cross_node: OrderedDict[Subject, CrossNodeFilters] = OrderedDict()

    def decide(
        self, subject: Subject, uid: str, based_on: BasedOn, restriction: Restriction = UNRESTRICTED
    ) -> Decision:
        """The feasible node with the best total score, or why there is none. The hash of `uid` with the node's name
        decides between equal totals, the same in a replay. `based_on`: positions of the log that the state contains.
        """
        cross_node, seed = self.cross_node_filters(subject), text_hash(uid)
        sampled = self._sample(subject, cross_node, restriction, uid, based_on)
        if sampled is None:
            choice = self._choice_among_all(subject.pod_class, cross_node, restriction, seed)
        else:
            choice = self._choice(sampled, cross_node, restriction, seed)
        return self._decision(choice, based_on, len(self.nodes) if sampled is None else sampled.examined)

    def _decision(self, choice: Choice, based_on: BasedOn, examined: int) -> Decision:
        explanation = PlacementExplanation(
            nodes_considered=examined,
            nodes_unexamined=len(self.nodes) - examined,
            nodes_feasible=choice.feasible,
            exclusions=choice.exclusions,
            top=choice.top,
            policy_version=self.policy_version,
            based_on=based_on,
        )
        if not choice.best:
            return Unschedulable(message=fit_error(explanation), explanation=explanation)
        return Placed(node=self.nodes.names[choice.best[0]], row=choice.best[0], explanation=explanation)

    def decide_in_parts(
        self,
        subject: Subject,
        parts: Sequence[tuple[Subject, Rows]],
        uid: str,
        based_on: BasedOn,
        restriction: Restriction,
        scored_as: Callable[[Rows], ScoredAs | Rejection],
    ) -> Decision | Rejection:
        """Choose a node like `decide`, if plugins show different copies of the pod to nodes. Nothing is cached.

        Args:
            parts: (subject of a copy, positions of the nodes that see this copy); each node occurs once.
            based_on: Positions of the log that the state contains.
            scored_as: Takes the feasible nodes' positions, ascending, and returns what is scored. Called if two or more
                are feasible and none is preferred. If it returns a `Rejection`, that is the result.

        Source: scheduler-core spec, 1 (steps 6 to 9), 3 (transformers).
        """
        exclusions: list[PluginExclusion] = []
        found: list[Rows] = [np.zeros(0, np.intp)]
        for part_subject, part in parts:
            look = self._sampled(part_subject.pod_class)
            look.examine(part)
            sifted = self._sift(look, self.cross_node_filters(part_subject), restriction)
            found.append(sifted.rows)
            exclusions += [*look.exclusions(), *sifted.exclusions]
        rows = np.sort(np.concatenate(found))
        if len(rows) > 1 and not np.isin(restriction.preferred, rows).any():
            scored = scored_as(rows)
            if isinstance(scored, Rejection):
                return scored
            subject, rows = scored.subject, scored.rows
            exclusions += [
                PluginExclusion(plugin=plugin, excluded=count, reasons={LEFT_OUT_REASON: count})
                for plugin, count in scored.left_out.items()
            ]
        look = self._sampled(subject.pod_class)
        best, top = self._choose(look, self.cross_node_filters(subject), rows, restriction, text_hash(uid))
        return self._decision(Choice(len(rows), best, top, merged(exclusions)), based_on, len(self.nodes))

    def _choice_among_all(
        self, pod: PodClass, cross_node: CrossNodeFilters, restriction: Restriction, seed: int
    ) -> Choice:
        """Choose by what the class shares with similar ones if only its nodes matter, otherwise by its view."""
        is_plain = restriction.looks_everywhere and not (restriction.barred or cross_node or self.nodes.unhealthy)
        member = self._families.of(pod) if is_plain else None
        if member is not None:
            return member.choice(self.top_scores, seed)
        return self._choice(self._look(pod), cross_node, restriction, seed)

    def _choice(
        self,
        view: View | CandidateView | SampledView,
        cross_node: CrossNodeFilters,
        restriction: Restriction,
        seed: int,
    ) -> Choice:
        """Choose by the ranking that the view keeps if it applies to this pod, otherwise by examining every node."""
        in_order = restriction.looks_everywhere and not (self.nodes.unhealthy or isinstance(view, SampledView))
        if in_order and cross_node.by_domain is not None and isinstance(view, View) and not restriction.barred:
            choice = best_by_domain(view, cross_node.by_domain, seed, self.top_scores)
            if choice is not None:
                return choice
        sifted: _Sifted | None = None
        if in_order and not cross_node.scores and not isinstance(view, SampledView):
            can_skip = not restriction.barred or (isinstance(view, View) and not view.normalizes)
            sifted = None if can_skip and not cross_node.filters else self._sift(view, cross_node, restriction)
            if sifted is None or not sifted.exclusions:
                return self._ranked(view, restriction.barred if sifted is None else (), seed)
        sifted = self._sift(view, cross_node, restriction) if sifted is None else sifted
        best, top = self._choose(view, cross_node, sifted.rows, restriction, seed)
        return Choice(len(sifted.rows), best, top, [*view.exclusions(), *sifted.exclusions])

    def _ranked(self, view: View | CandidateView, barred: Iterable[int], seed: int) -> Choice:
        """Choose among all feasible nodes of the view, except the nodes that are barred from this attempt."""
        barred = [row for row in barred if isinstance(view, View) and view.is_feasible(row)]
        feasible, exclusions = view.feasible - len(barred), view.exclusions()
        best = view.best(self.top_scores + len(barred), seed) if feasible else []
        if barred:
            best = [row for row in best if row not in barred][: self.top_scores]
            reasons = {BARRED_REASON: len(barred)}
            exclusions = [
                *exclusions,
                PluginExclusion(plugin=NOMINATED_PODS, excluded=len(barred), reasons=reasons),
            ]
        return Choice(feasible, best, view.scored(best) if best else [], exclusions)

    def _sample(
        self, subject: Subject, cross_node: CrossNodeFilters, restriction: Restriction, uid: str, based_on: BasedOn
    ) -> SampledView | None:
        """Return a view of a sample of the nodes, or None if all nodes must be examined."""
        if restriction.first:
            look = self._sampled(subject.pod_class)
            look.examine(np.array(restriction.first, np.intp))
            if len(self._sift(look, cross_node, restriction).rows):
                return look
        sampling = self._sampling
        if sampling is None or restriction.rows is not None or sampling.wanted(len(self.nodes)) >= len(self.nodes):
            return None
        if self._candidate_views is not None and self._candidate_views.of(subject.pod_class) is not None:
            return None
        look = self._sampled(subject.pod_class)
        seed = text_hash(f"{uid}/{based_on.ev}")

        def found() -> Rows:
            return self._sift(look, cross_node, restriction).rows

        search(look, sampling, restriction.preferred, seed, found, self.nodes)
        return look if len(found()) else None

    def _sampled(self, pod: PodClass) -> SampledView:
        return SampledView(self.nodes, self.profile, self.answers.asked.of(pod), pod)

    def feasible(self, subject: Subject, restriction: Restriction = UNRESTRICTED) -> Rows:
        """Return the positions of all nodes on which a pod of the subject is feasible now, ascending."""
        return self._sift(self._look(subject.pod_class), self.cross_node_filters(subject), restriction).rows

    def has_room(self, subject: Subject) -> bool:
        """Return False if an attempt of a pod of the subject would certainly find no feasible node now, else True."""
        if self.profile.concerning(subject.pod_class.concerned).sees_otherwise:
            return len(self.nodes) > 0
        if self._candidate_views is not None and not self.views.keeps(subject.pod_class):
            rows = self._candidate_views.with_room(subject.pod_class)
            if rows is not None:
                return len(self.passing(subject, rows)) > 0
        view = self._look(subject.pod_class)
        cross_node = self.cross_node_filters(subject)
        return view.feasible > 0 if not cross_node.filters else len(self._sift(view, cross_node, UNRESTRICTED).rows) > 0

    def passing(self, subject: Subject, rows: Rows) -> Rows:
        """Return the positions in `rows` whose nodes pass every filter now. Pods on trial count on their nodes."""
        rows = self.answers.passing(subject.pod_class, rows)
        for _, rule in self.cross_node_filters(subject).filters:
            codes = rule.filter(rows) if len(rows) else None
            if codes is not None:
                rows = rows[codes == 0]
        return rows

    def passes(self, subject: Subject, row: int) -> bool:
        """Return whether the node at position `row` passes every filter now. Takes a few microseconds."""
        if not self.answers.passes(subject.pod_class, row):
            return False
        filters = self.cross_node_filters(subject).filters
        if not filters:
            return True
        found = (rule.filter(np.array([row], np.intp)) for _, rule in filters)
        return not any(codes is not None and bool(codes[0]) for codes in found)

    def resolvable(self, subject: Subject) -> Rows:
        """Return the positions of nodes that refuse the pod now, but for which preemption might help, ascending."""
        view = self._look(subject.pod_class)
        found = [view.resolvable()]
        rows = view.feasible_rows()
        for _, rule in self.cross_node_filters(subject).filters:
            codes = rule.filter(rows) if len(rows) else None
            if codes is not None:
                found += [rows[codes == code] for code in _present(codes) if not rule.is_unresolvable(code)]
                rows = rows[codes == 0]
        return np.sort(np.concatenate(found))

    def refusals(self, subject: Subject) -> list[Refusals]:
        """Return the refused nodes by plugin and reason. A node counts only for the first plugin that refuses it."""
        view = self._look(subject.pod_class)
        found, rows = view.refusals(), view.feasible_rows()
        for name, rule in self.cross_node_filters(subject).filters:
            codes = rule.filter(rows) if len(rows) else None
            if codes is not None:
                found += [
                    Refusals(name, rule.reason(code), rows[codes == code], not rule.is_unresolvable(code))
                    for code in _present(codes)
                ]
                rows = rows[codes == 0]
        return found

    def _look(self, pod_class: PodClass) -> View | CandidateView:
        """Return the current view of all nodes, or of the few candidates of the class."""
        if self._candidate_views is not None and not self.views.keeps(pod_class):
            candidate_view = self._candidate_views.of(pod_class)
            if candidate_view is not None:
                return candidate_view
        return self.views.of(pod_class)

    def cross_node_filters(self, subject: Subject) -> CrossNodeFilters:
        """Return the cached cross-node filters and scores of a subject, made again if a plugin's version has grown."""
        version = 0
        for each in self.answers.asked.of(subject.pod_class).versions:
            version += each()
        cross_node = self._cross_node.get(subject) if self._keeps_cross_node else None
        if cross_node is None or cross_node.version != version:
            made = self._made(subject, version) if subject.alone is None else self.cross_node_filters(subject.alone)
            cross_node = self._cross_node[subject] = made
            self._cross_node.move_to_end(subject)
            if len(self._cross_node) > _FILTERS_KEPT:
                self._cross_node.popitem(last=False)
        return cross_node

    def _made(self, subject: Subject, version: int) -> CrossNodeFilters:
        plugins = self.profile.concerning(subject.pod_class.concerned)
        filters = [(plugin.name, plugin.filter_for(subject)) for plugin in plugins.at(CROSS_NODE_FILTER)]
        weighted = {plugin.name: weight for plugin, weight in self.profile.cross_node_scores}
        scores = [
            (plugin.name, plugin.score_for(subject), weighted[plugin.name]) for plugin in plugins.at(CROSS_NODE_SCORE)
        ]
        return CrossNodeFilters(
            version,
            [(name, rule) for name, rule in filters if rule is not None],
            [(name, rule, weight) for name, rule, weight in scores if rule is not None],
        )

    def _sift(
        self, view: View | CandidateView | SampledView, cross_node: CrossNodeFilters, restriction: Restriction
    ) -> _Sifted:
        sifted = _Sifted(view.feasible_rows())
        if restriction.rows is not None:
            kept = np.intersect1d(sifted.rows, restriction.rows, assume_unique=True)
            reason = f"node(s) didn't satisfy plugin(s) [{restriction.plugin}]{restriction.reason}"
            sifted.exclude(restriction.plugin, reason, len(sifted.rows) - len(kept))
            sifted.rows = kept
        for name, rule in cross_node.filters:
            codes = rule.filter(sifted.rows) if len(sifted.rows) else None
            if codes is not None:
                reasons = {rule.reason(code): int((codes == code).sum()) for code in _present(codes)}
                if reasons:
                    excluded = sum(reasons.values())
                    sifted.exclusions.append(PluginExclusion(plugin=name, excluded=excluded, reasons=reasons))
                    sifted.rows = sifted.rows[codes == 0]
        if restriction.barred:
            kept = np.setdiff1d(sifted.rows, np.array(restriction.barred, np.intp), assume_unique=True)
            sifted.exclude(NOMINATED_PODS, BARRED_REASON, len(sifted.rows) - len(kept))
            sifted.rows = kept
        return sifted

    def _choose(
        self,
        view: View | CandidateView | SampledView,
        cross_node: CrossNodeFilters,
        rows: Rows,
        restriction: Restriction,
        seed: int,
    ) -> tuple[list[int], list[NodeScore]]:
        """Return the best rows, best first, and their scores."""
        if restriction.preferred:
            feasible = set(row_list(rows))
            for row in restriction.preferred:
                if row in feasible:
                    return [row], [NodeScore(self.nodes.names[row], 0, {})]
        if len(rows) == 0:
            return [], []
        totals, bounds = view.totals_among(rows)
        added: list[tuple[str, IntArray]] = []
        for name, score, weight in cross_node.scores:
            scores = score.scores(rows)
            if scores is not None:
                added.append((name, weight * scores))
                totals = totals + added[-1][1]
        if self.nodes.unhealthy:
            weighted = totals * self.nodes.weight[rows] // 100
            added.append((NODE_HEALTH, weighted - totals))
            totals = weighted
        indexes = [0] if len(rows) == 1 else best_of(totals, self.nodes.name_hash, seed, self.top_scores, rows)
        best = row_list(rows[indexes])
        parts = view.parts(best, bounds)
        for name, amounts in added:
            for part, amount in zip(parts, row_list(amounts[indexes]), strict=True):
                part[name] = amount
        names, scored = self.nodes.names, row_list(totals[indexes])
        return best, [NodeScore(names[row], total, part) for row, total, part in zip(best, scored, parts, strict=True)]


def _present(codes: IntArray) -> list[int]:
    """Return the distinct codes above 0, ascending."""
    return [code for code in row_list(np.flatnonzero(np.bincount(codes))) if code]
