"""The metric of the weights of quotas shows the quotas that exist, with their present resources."""

from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koordcore.service.telemetry.metrics import KEPT_SECONDS
from prometheus_client import CollectorRegistry
from support.manual_clock import ManualClock
from support.reachable import container_sizes


class Shown:
    """The metrics of a webhook, and the quotas of its fold."""

    def __init__(self) -> None:
        self.clock, self.registry, self.quotas = ManualClock(), CollectorRegistry(), set[str]()
        self.metrics = WebhookMetrics(self.registry, self.quotas.__contains__, self.clock.monotonic)

    def weight(self, quota: str, resource: str = "cpu") -> float | None:
        by = {"elasticquota_name": quota, "resource_name": resource}
        return self.registry.get_sample_value("koord_manager_webhook_quota_shared_weight", by)


def test_weights_are_shown_until_the_quota_is_gone() -> None:
    it = Shown()
    it.metrics.shared_weights.set("a", {"cpu": 4.0, "memory": 8.0})
    assert (it.weight("a"), it.weight("a", "memory")) == (4.0, 8.0)
    it.quotas.add("a")
    assert it.weight("a") == 4.0
    it.clock.jump(10 * KEPT_SECONDS)
    assert it.weight("a") == 4.0
    it.quotas.discard("a")
    it.clock.jump(KEPT_SECONDS)
    assert it.weight("a") == 4.0
    it.clock.jump(1)
    assert it.weight("a") is None


def test_a_resource_that_a_quota_has_no_more_has_no_weight() -> None:
    it = Shown()
    it.metrics.shared_weights.set("a", {"cpu": 4.0, "memory": 8.0})
    it.metrics.shared_weights.set("a", {"cpu": 2.0})
    assert (it.weight("a"), it.weight("a", "memory")) == (2.0, None)


def test_weights_of_requests_that_made_no_quota_do_not_collect() -> None:
    it = Shown()
    for number in range(100):
        it.metrics.shared_weights.set(f"refused-{number}", {"cpu": 1.0})
        it.clock.jump(KEPT_SECONDS / 2)
    assert max(container_sizes(it.metrics.shared_weights).values()) < 50
