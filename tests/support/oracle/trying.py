"""Asks the oracle and our scheduler about the same cases, and counts."""

from collections import Counter
from dataclasses import dataclass, field

from support.oracle.differences import differences
from support.oracle.drawing.cases import case as case_of
from support.oracle.lines import Document
from support.oracle.ours import judge, scheduler_of
from support.oracle.program import Oracle
from support.oracle.shrinking import reproduction


@dataclass
class Tally:
    """What was compared, and what differed."""

    cases: int = 0
    verdicts: int = 0  # One for each pod and node
    accepted: int = 0  # Verdicts that let the pod onto the node
    invalid: int = 0  # Pods that the API server refuses
    wanted: Counter[str] = field(default_factory=Counter[str])  # By reason
    by_plugin: Counter[str] = field(default_factory=Counter[str])  # Refusals of kube-scheduler by plugin
    errors: Counter[str] = field(default_factory=Counter[str])  # Refusals of the API server by field and text
    differences: list[str] = field(default_factory=list[str])  # Those that are not wanted


def compare(oracle: Oracle, case: Document, tally: Tally) -> None:
    """Add a case to a tally. An exception of our scheduler is a difference."""
    answer = oracle.ask(case)
    tally.cases += 1
    running = answer.running or []
    for error in (error for stored in (*running, *answer.tried) for error in stored.errors):
        tally.errors[f"{error.field.split('[')[0]} {error.detail[:60]}"] += 1
    try:
        scheduler = scheduler_of(case, [stored.pod for stored in running if stored.pod])
    except Exception as error:  # noqa: BLE001 - the seed reproduces it
        tally.differences.append(f"ours fails on the cluster: {error!r}")
        return
    for tried in answer.tried:
        if tried.pod is None:
            tally.invalid += 1
            continue
        name = tried.pod["metadata"]["name"]
        try:
            judged = judge(scheduler, tried.pod)
        except Exception as error:  # noqa: BLE001
            tally.differences.append(f"{name}: ours fails: {error!r}")
            return
        tally.verdicts += len(judged.refused)
        tally.accepted += sum(not plugins for plugins in judged.refused.values())
        tally.by_plugin.update(plugin for plugins in tried.refused.values() for plugin in plugins)
        for text, wanted in differences(tried, judged):
            if wanted:
                tally.wanted[wanted] += 1
            else:
                tally.differences.append(f"{name} on {text}")


def compare_seed(oracle: Oracle, seed: int, tally: Tally) -> str:
    """Add the case of a seed to a tally. Returns JSON that reproduces its differences, with a case as small as it gets;
    "" if there are none.
    """
    before, case = len(tally.differences), case_of(seed)
    compare(oracle, case, tally)
    return reproduction(seed, case, tally.differences[before:], lambda smaller: _differences(oracle, smaller))


def _differences(oracle: Oracle, case: Document) -> list[str]:
    tally = Tally()
    compare(oracle, case, tally)
    return tally.differences
