"""Vectors of device discovery: what vendors' tools say, and where its settings come from."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

from conformance.registry import Json, adapter
from koord_devicediscovery.inventory import VENDORS
from koord_devicediscovery.settings import DiscoverySettings
from koord_devicediscovery.vendors.vendor import DiscoveryError, PciFunction, ToolError
from koordcore.protocol.hardware.devices import PciLocation, pci_location
from koordcore.service.settings import InvalidSettings
from koordcore.values import codec


class RecordedMachine:
    """A machine whose sysfs, /dev and tools are recorded in a vector."""

    def __init__(self, given: dict[str, Json]) -> None:
        self._given = given

    def pci_functions(self) -> list[PciFunction]:
        return [PciFunction.of(each["vendor"], each["product"]) for each in self._given["pci"]]

    def locate(self, bus_id: str) -> PciLocation | None:
        found = self._given["sysfs"]["pci"].get(bus_id, {})
        return pci_location(found["numa_node"], found.get("realpath", "")) if "numa_node" in found else None

    def device_files(self) -> list[str]:
        return self._given["dev"]

    def ask(self, query: str, card: int | None = None) -> str:
        recorded: dict[str, Json] = self._given["tool_output"]
        answer: Json = recorded.get(query)
        if isinstance(answer, dict) and "exit" not in answer:
            answer = cast("dict[str, Json]", answer).get(str(card))
        if answer is None:
            raise ToolError(query, 127, "not recorded")
        if isinstance(answer, str):
            return answer
        ended = cast("dict[str, Json]", answer)
        if ended["exit"] != 0:
            raise ToolError(query, ended["exit"], ended["output"])
        return ended["output"]


@adapter("runtime.xpu_parse")
def xpu_parse(given: dict[str, Json]) -> dict[str, Json]:
    vendor = next(each for each in VENDORS if each.key == given["vendor"])
    machine = RecordedMachine(given)
    if not vendor.is_present(machine):
        return {"devices": [], "error": False}
    try:
        found = vendor.discover(machine)
    except DiscoveryError:
        return {"devices": None, "error": True}
    devices = codec.decode(codec.encode(found.devices), list[dict[str, Json]])
    for device in devices:
        device["status"].pop("errMessage", None)
    return {"devices": devices, "error": False}


@adapter("runtime.config_precedence")
def config_precedence(given: dict[str, Json]) -> dict[str, Json]:
    with tempfile.TemporaryDirectory() as name:
        # The files of the case lie below a folder of our own, so every word that names one is moved there.
        moved: dict[str, str] = {path: f"{name}/{number}" for number, path in enumerate(given["files"])}
        for path, text in given["files"].items():
            Path(moved[path]).write_text(text)

        def placed(text: str) -> str:
            head, equals, tail = text.rpartition("=")
            return f"{head}{equals}{moved.get(tail, tail)}"

        environ: dict[str, str] = given["env"]
        argv = [placed(word) for word in given["argv"]]
        env = {name: moved.get(text, text) for name, text in environ.items()}
        try:
            settings = DiscoverySettings.load(argv, env)
        except InvalidSettings:
            return {"config": None, "error": True}
    config = {
        "oneshot": settings.oneshot,
        "no_timestamp": settings.no_timestamp,
        "sleep_interval_seconds": settings.sleep_interval,
        "prints_output_file": settings.prints_output_file,
    }
    return {"config": config, "error": False}
