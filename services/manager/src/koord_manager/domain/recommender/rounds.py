"""The recommender's round: every minute each Recommendation says what it recommends, and one pod at a time follows it.

source    manager spec, 15.6, 15.7
"""

from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft

from koord_manager.domain.recommender.apply import replacement_drafts
from koord_manager.domain.recommender.book import RecommenderBook
from koord_manager.domain.recommender.decide import recommendation_drafts
from koord_manager.domain.view import ManagerView

INTERVAL_SECONDS: Final = 60


class RecommenderRounds:
    """The book, and when the next round is due.

    loading     the history is being read: nothing is carried out yet
    """

    def __init__(self, book: RecommenderBook | None = None) -> None:
        self.book = book or RecommenderBook()
        self.loading = False
        self._last: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether a minute has passed since the last round."""
        return self._last is None or (now - self._last).total_seconds() >= INTERVAL_SECONDS

    def drafts(self, view: ManagerView, now: datetime) -> list[Draft]:
        """The facts of the round that is due; none when none is."""
        if not self.is_due(now):
            return []
        self._last = now
        book = self.book
        book.targets.refresh(view)
        live = book.targets.live_pods(view)
        book.forget(view, now.timestamp())
        drafts = recommendation_drafts(book, view, live, now, loading=self.loading)
        if not self.loading:
            for wanted in book.targets.all():
                drafts.extend(replacement_drafts(view, wanted, live.get(wanted.id, []), now))
        return drafts
