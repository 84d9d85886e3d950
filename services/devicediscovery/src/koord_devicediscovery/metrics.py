"""Metrics of device discovery."""

from koordcore.service.telemetry.metrics import Metrics
from prometheus_client import Counter, Gauge

from koord_devicediscovery.inventory import Inventory


class DiscoveryMetrics:
    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._looks = Counter("koord_devicediscovery_looks", "Looks at all vendors", registry=registry)
        self._failures = Counter(
            "koord_devicediscovery_failures", "Vendors and cards whose tool failed", ["vendor"], registry=registry
        )
        self._devices = Gauge(
            "koord_devicediscovery_devices", "Devices in the file", ["vendor", "healthy"], registry=registry
        )
        self._vendors: set[str] = set()

    def observe(self, found: Inventory) -> None:
        self._looks.inc()
        for what in found.errors:
            self._failures.labels(what.partition("/")[0]).inc()
        self._vendors.update(found.by_vendor)
        for vendor in self._vendors:  # also of a vendor whose last card is gone
            for healthy in (True, False):
                count = sum(1 for device in found.by_vendor.get(vendor, ()) if device.status.healthy is healthy)
                self._devices.labels(vendor, str(healthy).lower()).set(count)
