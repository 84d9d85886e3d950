"""Combine the vendors' devices. The last good result of a vendor stays in force while its tool fails.

Source: runtime spec, 8.2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koord_devicediscovery.vendors.cambricon import CAMBRICON
from koord_devicediscovery.vendors.huawei import HUAWEI
from koord_devicediscovery.vendors.kunlun import KUNLUN
from koord_devicediscovery.vendors.metax import METAX
from koord_devicediscovery.vendors.vendor import DiscoveryError, Machine, Vendor, Xpu, unhealthy

VENDORS: Final = (HUAWEI, CAMBRICON, KUNLUN, METAX)
"""All vendors, in the order in which the file has their devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The devices of a node after all vendors' tools were run once."""

    # Key of a vendor -> its devices.
    by_vendor: Mapping[str, Sequence[Xpu]] = field(default_factory=dict[str, Sequence[Xpu]])
    # Key of a vendor, or `<vendor>/<minor>` of a card -> reason why its description failed this time.
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def devices(self) -> list[Xpu]:
        """In the order of `VENDORS`."""
        return [device for vendor in VENDORS for device in self.by_vendor.get(vendor.key, ())]


def take_inventory(
    before: Inventory, machine_of: Callable[[Vendor], Machine], vendors: Sequence[Vendor] = VENDORS
) -> Inventory:
    """Describe the devices of every vendor whose cards the machine has. Other vendors are left out of the result.

    If a vendor's tool fails, its devices are taken from `before`, the result of the previous run. If only the command
    for one card fails, that card is taken from it and is unhealthy.
    """
    by_vendor: dict[str, Sequence[Xpu]] = {}
    errors: dict[str, str] = {}
    for vendor in vendors:
        known = before.by_vendor.get(vendor.key, ())
        try:
            machine = machine_of(vendor)
            if not vendor.is_present(machine):
                continue
            found = vendor.discover(machine)
        except Exception as error:  # noqa: BLE001 - an output that nobody expected hides no other vendor
            errors[vendor.key] = _reason(error)
            by_vendor[vendor.key] = known
            continue
        errors.update({f"{vendor.key}/{minor}": why for minor, why in found.failed.items()})
        lost = (
            msgspec.structs.replace(device, status=unhealthy("query failed", found.failed[device.minor]))
            for device in known
            if device.minor in found.failed
        )
        by_vendor[vendor.key] = sorted((*found.devices, *lost), key=lambda device: int(device.minor))
    return Inventory(by_vendor=by_vendor, errors=errors)


def _reason(error: Exception) -> str:
    """An error of the machine says it by itself."""
    if isinstance(error, DiscoveryError | OSError):
        return str(error)
    return f"the output of its tool is not understood: {type(error).__name__}: {error}"
