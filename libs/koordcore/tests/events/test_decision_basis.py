"""Placements and explanations of schema 1 are read with one decision basis."""

from typing import Any

import msgspec
import pytest
from koordcore.events.envelope import BasedOn
from koordcore.events.pod import DecisionBasis, PodNominated, PodPlaced, merge_standing, merge_turn

EXPLANATION = {"nodes_considered": 1, "nodes_feasible": 1, "policy_version": "p", "based_on": {"ev": 7, "obs": 3}}
PLACED = {
    "namespace": "d",
    "name": "web",
    "node": "n",
    "requests": {},
    "attempt": 1,
    "queued_at": "",
    "explanation": EXPLANATION,
}


@pytest.mark.parametrize(
    ("recorded", "basis"),
    [
        ({}, None),
        (
            {"ordinal": 4, "standing": {"decided_at": 9.5, "acknowledged": 8}},
            DecisionBasis(based_on=BasedOn(7, 3), ordinal=4, decided_at=9.5, acknowledged=8, found=True),
        ),
    ],
    ids=["not recorded", "recorded"],
)
def test_placement_of_schema_1_has_a_basis_if_it_was_recorded(
    recorded: dict[str, Any], basis: DecisionBasis | None
) -> None:
    assert msgspec.convert(merge_standing({**PLACED, **recorded}), PodPlaced).basis == basis


def test_turn_of_schema_1_becomes_the_basis() -> None:
    turn = {"ordinal": 4, "based_on": {"ev": 7, "obs": 3}, "standing": {"decided_at": 9.5, "retracted": 1}}
    body = {"namespace": "d", "name": "web", "node": "n", "plugin": "DefaultPreemption", "turn": turn}

    nominated = msgspec.convert(merge_turn(body), PodNominated)

    assert nominated.basis == DecisionBasis(based_on=BasedOn(7, 3), ordinal=4, decided_at=9.5, forgotten=1)
