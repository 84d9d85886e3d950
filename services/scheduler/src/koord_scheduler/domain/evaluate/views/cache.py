"""The views of one engine, one per class; those that were not looked at for long are let go."""

from collections import OrderedDict

from koord_scheduler.domain.evaluate.views.answers import MOST_KEPT, Answers
from koord_scheduler.domain.evaluate.views.view import View
from koord_scheduler.domain.pods.equivalence_classes import PodClass


class Views:
    """Views over the same columns. One decision at a time.

    Args:
        keep: False: nothing is kept from one look to the next.
    """

    def __init__(self, answers: Answers, *, keep: bool = True) -> None:
        self._answers = answers
        self._keep = keep
        self._views: OrderedDict[PodClass, View] = OrderedDict()

    def keeps(self, pod: PodClass) -> bool:
        """Return whether the class has a cached view."""
        return pod in self._views

    def of(self, pod: PodClass) -> View:
        """Return the up-to-date view of a class."""
        if not self._keep:
            self._views.clear()
        view = self._views.get(pod)
        if view is None:
            view = self._views[pod] = View(self._answers, pod)
            if len(self._views) > MOST_KEPT:
                self._views.popitem(last=False)
        elif len(self._views) > MOST_KEPT // 2:
            self._views.move_to_end(pod)
        view.refresh()
        return view
