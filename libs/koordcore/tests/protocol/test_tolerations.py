"""Tolerations found by an index, and one by one."""

from itertools import product

from koordcore.protocol.objects import Taint, Toleration
from koordcore.protocol.placement import TolerationIndex, is_tolerated

KEYS, VALUES, OPERATORS = ("", "a", "b"), ("", "v", "w"), ("", "Equal", "Exists", "Unknown")
EFFECTS = ("", "NoSchedule", "NoExecute", "PreferNoSchedule")
TOLERATIONS = [
    Toleration(key=key, operator=operator, value=value, effect=effect)
    for key, operator, value, effect in product(KEYS, OPERATORS, VALUES, EFFECTS)
]
TAINTS = [Taint(key=key, value=value, effect=effect) for key, value, effect in product(KEYS, VALUES, EFFECTS)]


def test_an_index_tolerates_what_a_toleration_tolerates() -> None:
    for toleration, taint in product(TOLERATIONS, TAINTS):
        assert TolerationIndex([toleration]).tolerates(taint) == is_tolerated(taint, [toleration]), (toleration, taint)


def test_many_tolerations_for_many_taints_take_no_product_of_both() -> None:
    """As a pod and a node of 1 MB can have them: one by one, these are 80 million comparisons."""
    tolerations = [Toleration(key=f"k{number}", operator="Exists") for number in range(8_999)]
    taints = [Taint(key=f"k{number}", value="v", effect="NoSchedule") for number in range(9_000)]
    index = TolerationIndex(tolerations)
    assert [index.first_untolerated(taints) for _ in range(20)] == [8_999] * 20
    soft = [Taint(key=f"k{number}", value="v", effect="PreferNoSchedule") for number in range(9_000)]
    assert index.intolerable_preferences(soft) == 1
    assert index.first_untolerated(soft) is None
