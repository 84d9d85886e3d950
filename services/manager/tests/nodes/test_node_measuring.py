"""How nodes measure while nobody has configured anything, or not readably."""

from koordcore.events.nodepolicy import NodeMetricPolicyRendered
from support.manager.world import ManagerWorld


def told(made: ManagerWorld) -> list[int]:
    """Report intervals that are told to the node now."""
    events = made.take(made.decided(NodeMetricPolicyRendered))
    assert all(isinstance(event, NodeMetricPolicyRendered) for event in events)
    return [event.spec["reportIntervalSeconds"] for event in events if isinstance(event, NodeMetricPolicyRendered)]


def test_a_node_that_was_never_told_measures_by_the_defaults_before_there_is_a_configuration() -> None:
    made = ManagerWorld()
    made.plain_node("n")
    made.policies.refresh(made.view)
    assert told(made) == [60]
    assert told(made) == []


def test_a_node_that_was_told_goes_on_while_the_configuration_cannot_be_read() -> None:
    made = ManagerWorld()
    made.plain_node("n")
    made.configure(colocation={"enable": True, "metricReportIntervalSeconds": 20})
    assert told(made) == [20]
    made.configure(colocation="no object")
    assert told(made) == []
