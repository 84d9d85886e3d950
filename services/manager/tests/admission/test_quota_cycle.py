"""The tree of quotas: a request that would close a cycle of parents is refused, and deleted quotas are forgotten."""

from dataclasses import replace

import pytest
from koord_manager.domain.admission.context.quota import Quota, Quotas
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.evaluation import evaluated_request
from koord_manager.domain.admission.quotas.quota_objects import validate_quota
from koord_manager.domain.admission.request import Operation
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from support.reachable import container_sizes


class NoPods:
    def pods_of_quota(self, name: str) -> int:
        return 0

    def pods_of_namespace(self, name: str) -> int:
        return 0


def quota(name: str, parent: str = keys.ROOT_QUOTA) -> Quota:
    labels = {keys.QUOTA_PARENT: parent, keys.QUOTA_IS_PARENT: "true"}
    return Quota(namespace="default", name=name, labels=labels, annotations={}, min={}, max={}, used={})


def tree(*quotas: Quota) -> Quotas:
    found = Quotas()
    for each in quotas:
        found.put(each)
    return found


@pytest.mark.parametrize(
    ("parent", "names"), [("a", "a -> a"), ("b", "a -> b -> a"), ("c", "a -> c -> b -> a"), ("d", "")]
)
def test_update_that_makes_a_quota_its_own_ancestor_is_refused_with_the_names(parent: str, names: str) -> None:
    old = quota("a")
    quotas = tree(old, quota("b", "a"), quota("c", "b"), quota("d"))
    found = validate_quota(Operation.UPDATE, quota("a", parent), old, quotas, NoPods(), Options())
    if names:
        assert found is not None
        assert found.rule == "parent-cycle"
        assert found.message == f"metadata.labels[{keys.QUOTA_PARENT}]: the parents form a cycle: {names}"
    else:
        assert found is None


def test_quota_below_a_cycle_that_exists_already_is_judged_by_the_other_rules() -> None:
    quotas = tree(quota("x", "y"), quota("y", "x"))
    assert validate_quota(Operation.CREATE, quota("below", "x"), None, quotas, NoPods(), Options()) is None


def test_quota_leaves_a_cycle_that_exists_already() -> None:
    old = quota("x", "y")
    assert validate_quota(Operation.UPDATE, quota("x"), old, tree(old, quota("y", "x")), NoPods(), Options()) is None


def test_quotas_that_came_and_went_leave_nothing_behind() -> None:
    found = Quotas()
    for number in range(100):
        name = f"q{number}"
        annotations = {keys.QUOTA_NAMESPACES: f'["team-{number}", "team-{number}"]'}
        found.put(replace(quota(name, parent=f"parent-{number}"), annotations=annotations))
        assert found.of_namespace(f"team-{number}") == found.get(name)
        found.remove("default", name)
    found.put(quota("a"))
    sizes = container_sizes(found)
    assert {path: size for path, size in sizes.items() if size > 5} == {}
    assert found.children(keys.ROOT_QUOTA) == [found.get("a")]


def test_overhead_counts_in_a_quota_unless_a_gate_leaves_it_out() -> None:
    pod = pod_from_json(
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "overhead": {"cpu": "250m", "memory": "64Mi"},
            },
        }
    )
    counted = evaluated_request(pod, Options())
    assert {name: amount.canonical() for name, amount in counted.items()} == {"cpu": "1250m", "memory": "67108864"}
    counted = evaluated_request(pod, Options(gates={"ElasticQuotaIgnorePodOverhead": True}))
    assert {name: amount.canonical() for name, amount in counted.items() if amount.nano} == {"cpu": "1"}
