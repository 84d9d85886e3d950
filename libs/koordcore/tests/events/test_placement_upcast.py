"""Placements of schema 1 stated allocation and gang as texts of annotations."""

from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_SCHEMA, AggregateRef, BasedOn, Draft, Origin, StoredEvent
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.values.allocation import Allocation


def read_as_schema_1(annotations: dict[str, str]) -> PodPlaced:
    """Read a placement that was stored as schema 1."""
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="p", based_on=BasedOn())
    event = PodPlaced(
        namespace="d",
        name="web",
        node="n",
        requests={},
        attempt=1,
        queued_at="",
        annotations=annotations,
        explanation=explanation,
    )
    origin = Origin(causation_id="c", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00Z")
    ref = AggregateRef("pod", "u")
    (sealed,) = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    read = CATALOGUE.read(StoredEvent(1, ref, {**sealed.headers, HEADER_SCHEMA: "1"}, sealed.body))
    assert isinstance(read, PodPlaced)
    return read


def test_annotations_of_an_allocation_and_a_gang_become_typed() -> None:
    read = read_as_schema_1(
        {
            keys.RESOURCE_STATUS: '{"cpuset":"0-3"}',
            keys.BIND_GANG_GROUP_ID: "default/g",
            keys.BIND_GANG_GROUP_ID_ALIAS: "default/g",
            keys.BIND_GANG_MEMBER_COUNT: "2",
            keys.BIND_GANG_MEMBER_COUNT_ALIAS: "2",
            "example.com/rack": "r1",
        }
    )

    assert (read.allocation, read.gang) == (Allocation(cpuset="0-3"), BoundGang("default/g", 2))
    assert read.annotations == {"example.com/rack": "r1"}


def test_a_plain_placement_stays_plain() -> None:
    read = read_as_schema_1({})

    assert (read.allocation, read.gang, read.annotations) == (Allocation(), None, {})
