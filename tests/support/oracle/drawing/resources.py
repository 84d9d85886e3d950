"""Requests and limits of containers and pods."""

from support.oracle.drawing.dice import Dice
from support.oracle.lines import Document

CPUS = ("100m", "250m", "500m", "1", "1500m", "0.1", "1e-1", "700000u", "2")
MEMORIES = ("64Mi", "256Mi", "512Mi", "1Gi", "1500M", "100e6", "2Gi", "128974848")
WIDGET = "example.com/widget"


def container_resources(dice: Dice) -> Document:
    """Requests only, limits only, both, or neither, for each resource on its own."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for resource, amounts, large in (("cpu", CPUS, "8"), ("memory", MEMORIES, "8Gi")):
        amount = "0" if dice.has("zero", 0.05) else dice.one(amounts)
        kind = dice.one(("none", "request", "request", "request", "limit", "both"))
        if kind in ("request", "both"):
            requests[resource] = amount
        if kind in ("limit", "both"):
            limits[resource] = large if kind == "both" and dice.chance(0.5) else amount
    if dice.has("extended", 0.2):
        limits[WIDGET] = dice.one(("1", "1", "2", "0"))
        if dice.chance(0.3):
            requests[WIDGET] = limits[WIDGET]
    if dice.has("ephemeral", 0.15):
        requests["ephemeral-storage"] = dice.one(("100Mi", "500Mi", "2Gi"))
    if dice.has("hugepages", 0.1):
        limits["hugepages-2Mi"] = dice.one(("2Mi", "8Mi"))
        requests.setdefault("cpu", "100m")
    return {"requests": requests, "limits": limits}


def pod_level_resources(dice: Dice) -> Document:
    """Resources of a pod as a whole, large enough for most containers."""
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    if dice.chance(0.6):
        found["requests"]["cpu"] = dice.one(("1", "3", "4500m"))
    if dice.chance(0.5):
        found["requests"]["memory"] = dice.one(("2Gi", "4Gi"))
    if dice.chance(0.4):
        found["limits"]["cpu"] = dice.one(("8", "16"))
    if dice.chance(0.4):
        found["limits"]["memory"] = dice.one(("8Gi", "16Gi"))
    if dice.has("hugepages", 0.1):
        found["limits"]["hugepages-2Mi"] = "16Mi"
    return found


def ports(dice: Dice, *, host_network: bool) -> list[Document]:
    """Ports of a container. Those of a pod in the node's network are its own, as an API server demands."""
    found: list[Document] = []
    for number in range(dice.one((0, 1, 1, 2)) if dice.has("ports", 0.25) else 0):
        port: Document = {"containerPort": dice.one((80, 81, 8080)) + 100 * number}
        if dice.chance(0.7):
            port["hostPort"] = port["containerPort"] if host_network else dice.one((80, 81, 8080)) + 100 * number
        if dice.chance(0.3):
            port["hostIP"] = dice.one(("127.0.0.1", "0.0.0.0", "10.0.0.1", "::", "fd00::1"))
        if dice.chance(0.3):
            port["protocol"] = dice.one(("TCP", "UDP", "SCTP"))
        found.append(port)
    return found
