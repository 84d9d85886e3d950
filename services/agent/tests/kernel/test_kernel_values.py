"""Values of kernel files at the edges of what a kernel writes."""

import pytest
from koord_agent.domain.kernel.cgroup_files import from_file_text
from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.domain.kernel.numa_usage import numa_memory_used_bytes, numa_system_memory_bytes
from koord_agent.domain.kernel.resctrl_files import resctrl_support
from koordcore.values.invalid import InvalidInput


@pytest.mark.parametrize("name", ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
@pytest.mark.parametrize("text", ["max", "100000", "", "max 100000 5"])
def test_cpu_max_needs_exactly_two_fields(name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"cpu\.max"):
        from_file_text(name, text, 2)


def test_cpu_max_with_two_fields() -> None:
    assert from_file_text("cpu.cfs_quota_us", "max 100000", 2) == "-1"
    assert from_file_text("cpu.cfs_quota_us", "50000 100000\n", 2) == "50000"
    assert from_file_text("cpu.cfs_period_us", "max 100000", 2) == "100000"


def test_numa_memory_is_never_negative() -> None:
    amounts = {"MemTotal": 10, "MemFree": 8, "Active(file)": 2, "Inactive(file)": 2, "SReclaimable": 1}
    meminfo = "\n".join(f"Node 0 {name}: {kib} kB" for name, kib in amounts.items())
    assert numa_memory_used_bytes(meminfo, 0) == 0
    assert numa_system_memory_bytes({0: 10.0, 1: 5.0}, {0: 12.0}) == {0: 0, 1: 5.0}


def test_numa_memory_without_entries_of_reclaimable_memory() -> None:
    meminfo = "Node 1 MemTotal: 10 kB\nNode 1 MemFree: 8 kB\nNode 1 Inactive(file): 1 kB\n"
    assert numa_memory_used_bytes(meminfo, 1) == 1024
    assert numa_memory_used_bytes(meminfo.replace(" 1 kB", " 3 kB"), 1) == 0
    with pytest.raises(MalformedCounter, match="node1/meminfo: no entry MemTotal"):
        numa_memory_used_bytes(meminfo.replace("MemTotal", "MemUsed"), 1)


@pytest.mark.parametrize("cpuinfo", ["", "processor : 0\nflags : rdt_a cat_l3 mba\n", "vendor_id :\n"])
def test_a_cpu_without_vendor_is_unknown(cpuinfo: str) -> None:
    support = resctrl_support(cpuinfo)
    assert (support.vendor, support.control, support.monitor) == ("unknown", False, False)
