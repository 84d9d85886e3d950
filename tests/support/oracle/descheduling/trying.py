"""Asks the Kubernetes descheduler and ours about the same cases, and counts."""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from support.oracle.descheduling.cases import SPREAD
from support.oracle.descheduling.cases import case as case_of
from support.oracle.descheduling.ours import Judged, judge
from support.oracle.descheduling.program import Answer, Descheduler
from support.oracle.lines import Document
from support.oracle.shrinking import reproduction

ROUNDS, MANY_ROUNDS = 1, 300
"""How often their plugin runs at first, and how often if another order of a map may explain a difference."""

HIGHEST = 1_000_000_000


@dataclass
class Tally:
    """What was compared, and what differed."""

    cases: int = 0
    verdicts: int = 0  # Three for each pod: the two filters of the evictor, and the plugin
    pods: int = 0
    evicted: int = 0
    invalid: int = 0  # Cases whose arguments both refuse
    by_plugin: Counter[str] = field(default_factory=Counter[str])  # Evictions of the Kubernetes descheduler
    differences: list[str] = field(default_factory=list[str])


def compare(descheduler: Descheduler, case: Document, tally: Tally) -> None:
    """Add a case to a tally. An exception of ours is a difference."""
    tally.cases += 1
    theirs = descheduler.ask({**_as_theirs(case), "rounds": ROUNDS})
    try:
        ours = judge(case)
    except Exception as error:  # noqa: BLE001 - the seed reproduces it
        tally.differences.append(f"ours fails: {error!r}")
        return
    if theirs.invalid or ours.invalid:
        tally.invalid += 1
        if bool(theirs.invalid) != bool(ours.invalid):
            tally.differences.append(f"arguments: theirs {theirs.invalid!r}, ours {ours.invalid!r}")
        return
    if sorted(ours.evicted) not in theirs.outcomes:
        theirs = descheduler.ask({**_as_theirs(case), "rounds": MANY_ROUNDS})
    pods = len(case.get("pods", ()))
    tally.pods += pods
    tally.verdicts += 3 * pods
    tally.evicted += len(theirs.outcomes[0])
    tally.by_plugin[case["plugin"]] += len(theirs.outcomes[0])
    tally.differences += _differences(case["plugin"], theirs, ours)


def compare_seed(descheduler: Descheduler, seed: int, tally: Tally) -> str:
    """Add the case of a seed to a tally. Returns JSON that reproduces its differences; "" if there are none."""
    before, case = len(tally.differences), case_of(seed)
    compare(descheduler, case, tally)
    return reproduction(seed, case, tally.differences[before:], lambda smaller: _of(descheduler, smaller))


def _of(descheduler: Descheduler, case: Document) -> list[str]:
    tally = Tally()
    compare(descheduler, case, tally)
    return tally.differences


def _differences(plugin: str, theirs: Answer, ours: Judged) -> Iterator[str]:
    for what, given, own in (
        ("evictor accepts", theirs.evictable, ours.evictable),
        ("evictor accepts at last", theirs.fitting, ours.fitting),
    ):
        for uid in sorted({*given} ^ own):
            yield f"{uid}: only {'their' if uid in given else 'our'} {what}"
    if sorted(ours.evicted) not in theirs.outcomes:
        likely = min(theirs.outcomes, key=lambda outcome: len({*outcome} ^ ours.evicted))
        for uid in sorted({*likely} ^ ours.evicted):
            yield f"{uid}: only {'their' if uid in likely else 'our'} {plugin} evicts"


def _as_theirs(case: Document) -> Document:
    """Their spread plugin gives up the highest priority first, by mistake, and ours the lowest."""
    if case.get("plugin") != SPREAD:
        return case
    changed = deepcopy(case)
    for pod in changed.get("pods", ()):
        spec = pod.setdefault("spec", {})
        spec["priority"] = HIGHEST - spec.get("priority", 0)
    return changed
