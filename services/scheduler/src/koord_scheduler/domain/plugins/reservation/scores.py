"""Scores of nodes by their Reservations: the first by the order label, else the one that the pod fills best. The last 7
bits of a raw score are the score of the nominated Reservation. The bits above are its rank by order label. So
`normalized` finds the node whose Reservation has the lowest order.

Source: scheduler-fine-grained spec, 3.8.
"""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray
from koord_scheduler.domain.plugins.reservation.pre_allocation import SelectedAmounts
from koord_scheduler.domain.plugins.reservation.usable import Usable, reservation_score

_SCORE_BITS: Final = 7
_FIRST: Final = 1000
"""Score of the node with the first Reservation by the order label."""
_MOST_ORDER: Final = 1 << 53
_MOST: Final = 100


def raw_score(usable: Usable, row: int) -> int:
    """Return the raw score of a node from its nominated Reservation; `normalized` turns it into 0..100. The order label
    of the Reservation, if it has one, is in the bits above the last 7. 0 if none is nominated. `usable`: the
    Reservations that the pods may use.
    """
    plain = usable.plain_score(row)
    if plain is not None:
        return plain
    nominated = usable.nominated(row)
    if nominated is None:
        return 0
    chosen = nominated.held()
    score = reservation_score(usable.requests, chosen.allocatable, chosen.allocated)
    order = chosen.terms.order
    if order is None:
        return score
    place = _MOST_ORDER - min(max(order, 1 - _MOST_ORDER), _MOST_ORDER - 1)
    return place << _SCORE_BITS | score


def score_of_selection(selected: SelectedAmounts, row: int) -> int:
    """Return the score of a node for a Reservation that may take the place of running pods. The score is 100 // (1 +
    number of pods whose place it takes there). Fewer pods score higher. `selected`: the pods whose place it would take,
    by node. They become its owners.
    """
    return _MOST // (1 + len(selected.selection(row).pods)) if row in selected else _MOST


def normalized(raw: IntArray, high: int) -> IntArray:
    """Return scores within 0..100 for raw scores of `raw_score`. If any feasible node has a Reservation with an order
    label, the nodes with the first order score 100, all others 0..10. Otherwise the score is 100 * raw // high. `raw`:
    raw scores, shape (K,). `high`: greatest raw score over the feasible nodes.
    """
    scores = np.bitwise_and(raw, (1 << _SCORE_BITS) - 1)
    if high >> _SCORE_BITS == 0:
        return _MOST * scores // high if high > 0 else scores
    first = raw >> _SCORE_BITS == high >> _SCORE_BITS
    return np.where(first, _MOST, _MOST * scores // _FIRST)
