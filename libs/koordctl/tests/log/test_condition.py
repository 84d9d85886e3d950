"""Judgements of `koord doctor` about the facts, each at its border."""

from itertools import pairwise

import pytest
from koordcore.embedded.nats import RESTART_FREE_BYTES
from koordcore.events.log import LogRestored
from koordctl.log.condition import (
    MOST_READS,
    Bounds,
    ahead_findings,
    count_finding,
    gone_finding,
    left_out,
    positions_to_read,
    readable_finding,
    storing_finding,
)
from koordctl.log.health import Verdict


def restored(position: int, left_out_to: int) -> LogRestored:
    return LogRestored(position=position, left_out_to=left_out_to, asked="", backup_taken_at="")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (Bounds(1, 10, 10), ""),
        (Bounds(5, 10, 6), ""),
        (Bounds(1, 0, 0), ""),
        (Bounds(11, 10, 0), ""),
        (Bounds(1, 10, 9), "1 facts are missing"),
        (Bounds(1, 40, 30), ""),
        (Bounds(25, 40, 11), ""),
        (Bounds(1, 40, 29), "1 facts are missing"),
    ],
)
def test_facts_are_missing_only_if_nothing_explains_it(bounds: Bounds, told: str) -> None:
    found = count_finding(bounds, left_out([restored(20, 30)]))
    assert found.verdict is (Verdict.BROKEN if told else Verdict.OK)
    assert found.told.startswith(told)


def test_the_first_and_the_last_fact_and_some_in_between_are_read() -> None:
    assert positions_to_read(Bounds(1, 0, 0), []) == []
    assert positions_to_read(Bounds(7, 7, 1), []) == [7]
    assert positions_to_read(Bounds(3, 6, 4), []) == [3, 4, 5, 6]
    many = positions_to_read(Bounds(11, 1_000_010, 1_000_000), left_out([restored(10, 20)]))
    assert (many[0] > 20, many[-1], len(many)) == (True, 1_000_010, MOST_READS - 1)
    assert max(later - earlier for earlier, later in pairwise(many)) <= 1_000_000 // 198


def test_what_cannot_be_read_is_named() -> None:
    assert readable_finding(9, []).verdict is Verdict.OK
    assert readable_finding(9, [4]).told == "the server has no fact at 4"
    assert readable_finding(9, list(range(7))).told.endswith("3, 4 and 2 more")
    assert readable_finding(3, [], "nothing came").verdict is Verdict.BROKEN


def test_only_what_is_ahead_of_the_log_is_named() -> None:
    assert list(ahead_findings(9, {"tables": 9, "snapshots": 3})) == []
    (found,) = ahead_findings(9, {"tables": 10, "snapshots": 3})
    assert found.told == "the log ends at 9, tables have facts up to 10"


def test_an_absent_stream_is_gone_only_if_others_prove_it() -> None:
    assert gone_finding("EV", []).remedy == "koord bus bootstrap"
    assert "docs/runbook.md" in gone_finding("EV", ["OBJ_x"]).remedy


@pytest.mark.parametrize(
    ("free", "remedy"),
    [
        (RESTART_FREE_BYTES - 1, "free space on its disk"),
        (RESTART_FREE_BYTES, "restart nats-server"),
        (None, "free space, then restart nats-server"),
    ],
)
def test_a_server_that_stores_nothing_is_restarted_when_it_has_space(free: int | None, remedy: str) -> None:
    assert storing_finding("", free).verdict is Verdict.OK
    found = storing_finding("write error", free)
    assert (found.verdict, found.remedy.startswith(remedy)) == (Verdict.BROKEN, True)
