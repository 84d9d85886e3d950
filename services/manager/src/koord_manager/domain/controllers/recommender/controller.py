"""Compute every Recommendation once a minute, and resize or replace one outdated pod at a time.

Source:
    manager spec, 15.6, 15.7
"""

from datetime import datetime
from functools import partial
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.state.aggregates import PodSpecState, RecommendationState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import REPLACEMENT
from koord_manager.domain.controllers.recommender.apply import replacement_drafts
from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koord_manager.domain.controllers.recommender.decide import recommendation_drafts
from koord_manager.domain.controllers.recommender.targets import changing

INTERVAL_SECONDS: Final = 60
MATCHED_AT_ONCE: Final = 2000
"""Pods matched with Recommendations in one cycle."""


class RecommenderController:
    """Computes all Recommendations once a minute, with the learned models.

    A run matches a part of the pods in each cycle, so that a large cluster does not block other tasks.
    """

    def __init__(self, book: RecommenderBook | None = None, *, can_resize: bool = False) -> None:
        self.book = book or RecommenderBook()
        self.can_resize = can_resize  # Whether a gateway asks an API server to resize pods in place
        self.loading = False  # Whether past reports are still being read after a start; until then no pod is replaced
        self._last: datetime | None = None
        self._waiting: list[str] = []
        self._live: dict[str, list[tuple[str, PodSpecState]]] = {}
        self._changing: dict[str, str] = {}  # Uid of a pod -> id of the Recommendation that changes it

    def is_due(self, now: datetime) -> bool:
        """Return whether a run is not complete, or a minute has passed since the last run began."""
        return bool(self._waiting) or self._last is None or (now - self._last).total_seconds() >= INTERVAL_SECONDS

    def drafts(self, view: ManagerView, now: datetime) -> list[Draft]:
        """Continue the run, and return its facts when it is complete; otherwise return an empty list.

        The facts are new statuses of Recommendations, and requests to resize or to evict outdated pods. If a
        Recommendation cannot be computed, its status stays.
        """
        if not self.is_due(now):
            return []
        book = self.book
        book.targets.refresh(view)
        if not self._waiting:
            self._last, self._live, self._changing = now, {}, {}
            self._waiting = book.targets.candidates(view)[::-1]
        specs = view.state.of_kind(PodSpecState)
        for _ in range(min(MATCHED_AT_ONCE, len(self._waiting))):
            uid = self._waiting.pop()
            matching = book.targets.of_pod(view, uid)
            if (one := changing(matching)) is not None:
                self._changing[uid] = one.id
            for wanted in matching:
                self._live.setdefault(wanted.id, []).append((uid, specs[uid]))
        return [] if self._waiting else self._decide(view, now)

    def _decide(self, view: ManagerView, now: datetime) -> list[Draft]:
        book, specs = self.book, view.state.of_kind(PodSpecState)
        live = {
            id_: sorted(
                (entry for entry in pods if entry[0] in specs), key=lambda entry: (entry[1].added_seq, entry[0])
            )
            for id_, pods in self._live.items()
        }
        self._live = {}
        book.forget(view, now.timestamp())
        drafts = recommendation_drafts(book, view, live, now, loading=self.loading)
        if not self.loading:
            states, queue = view.state.of_kind(RecommendationState), view.queue
            targets = {wanted.id: wanted for wanted in book.targets.all()}
            queue.resync(REPLACEMENT, targets)
            for id_ in queue.take(REPLACEMENT):
                wanted = targets.get(id_)
                if wanted is None:
                    queue.forget(REPLACEMENT, id_)
                    continue
                state = states.get(wanted.id)
                pods = [entry for entry in live.get(wanted.id, []) if self._changing.get(entry[0]) == wanted.id]
                decide = partial(replacement_drafts, view, wanted, pods, now, state, can_resize=self.can_resize)
                drafts += queue.attempt(REPLACEMENT, id_, decide) or ()
        return drafts
