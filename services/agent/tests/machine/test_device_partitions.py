"""The partition table of a device report."""

from koord_agent.domain.devices.xpu import report_devices, xpu_of


def xpu(minor: str, *links: dict[str, object]) -> dict[str, object]:
    return {"minor": minor, "uuid": f"u{minor}", "topology": {"p2pLinks": list(links)}}


def test_incomplete_links_leave_the_complete_ones() -> None:
    devices = [
        xpu("0", {"peerMinor": "", "type": "HCCS"}, {"peerMinor": "1", "type": "HCCS"}, {"peerMinor": "2"}, {}),
        xpu("1", {"peerMinor": "x", "type": "HCCS"}, {"peerMinor": "2,3", "type": "PIX"}, {"type": "PIX"}),
        xpu("2", {"peerMinor": None, "type": None}, {"peerMinor": "1,", "type": "PIX"}),
    ]
    partitions = report_devices([xpu_of(device) for device in devices]).partitions
    found = {size: [(entry.minors, entry.gpu_link_type) for entry in table] for size, table in partitions.items()}
    assert found == {"2": [((0, 1), "HCCS"), ((1, 2), "PIX")], "3": [((1, 2, 3), "PIX")]}
