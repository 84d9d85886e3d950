"""Finds the greatest number of members of a gang that land together.

Members depend on each other: too few never start, and one that does not fit may keep all others from their nodes. So
each number is tried on a copy of the state of its own.
"""

from collections.abc import Callable

import msgspec
from koordcore.requests.fit import FitAnswer, FitRequest

from koord_scheduler.domain.fit.question import MOST_PODS

Probe = Callable[[FitRequest], FitAnswer]
"""Answers a question on a further copy of the state."""
NOT_TRIED = "PreEnqueue"
"""Replaces a plugin's name in the shortage of pods that may not be attempted, for example in a too small gang."""


def greatest_gang(request: FitRequest, probe: Probe) -> FitAnswer:
    """Return the answer for the greatest number of gang members that are all placed, found by bisection.

    `most` of the answer is this number: 0 if no number of members fits.

    Args:
        request: The question, with one set of members of a gang.
        probe: Answers the question for a given number of members.
    """

    def tried(replicas: int) -> FitAnswer:
        pods = [msgspec.structs.replace(request.pods[0], replicas=replicas)]
        return probe(msgspec.structs.replace(request, pods=pods, finds_most=False))

    best: FitAnswer | None = None
    failed = tried(1)
    low, high = 1, min(MOST_PODS, _most_by_amounts(failed))
    while low <= high:
        middle = (low + high) // 2
        answer = tried(middle)
        shortage = answer.sets[0].shortage
        if answer.fits:
            best, low = answer, middle + 1
        elif shortage is not None and shortage.plugin == NOT_TRIED:
            failed, low = answer, middle + 1
        else:
            failed, high = answer, middle - 1
    if best is None:
        [none] = failed.sets
        return msgspec.structs.replace(failed, sets=[msgspec.structs.replace(none, asked=0)], most=0)
    [found] = best.sets
    shortage = failed.sets[0].shortage
    if shortage is not None:
        shortage = msgspec.structs.replace(shortage, short_in_total=0)
    sets = [msgspec.structs.replace(found, shortage=shortage)]
    return msgspec.structs.replace(best, sets=sets, most=found.asked, is_limited=found.asked == MOST_PODS)


def _most_by_amounts(answer: FitAnswer) -> int:
    """Return an upper limit of the replicas by the free amounts."""
    [one] = answer.sets
    return one.placed + min((each.replicas for each in one.headroom), default=MOST_PODS)
