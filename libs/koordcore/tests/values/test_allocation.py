"""What a pod was given on its node, and how the contributions of several plugins become one value."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.values import codec
from koordcore.values.allocation import (
    NOTHING,
    AllocatedDevice,
    Allocation,
    ContributedTwice,
    ReservationUse,
    VirtualFunction,
    ZoneAmounts,
    combined,
)

CPUS = Allocation(cpuset="0-3", cpu_bind_policy="FullPCPUs", cpu_exclusive_policy="PCPULevel")
ZONES = Allocation(zones=(ZoneAmounts(0, {"cpu": 4000}),))
GPU = Allocation(devices=(AllocatedDevice(type="gpu", minor=1, id="GPU-1", amounts={"koordinator.sh/gpu-core": 100}),))
RDMA = Allocation(
    devices=(AllocatedDevice(type="rdma", minor=0, virtual_functions=(VirtualFunction(2, "0000:11:00.2"),)),)
)
RESERVED = Allocation(reservation=ReservationUse(name="r", uid="u", amounts={"cpu": 1000}))
CHARGED = Allocation(quota="team-a")
PARTS = (CPUS, ZONES, GPU, RDMA, RESERVED, CHARGED)


class Holder(msgspec.Struct, omit_defaults=True):
    """Something that has an allocation."""

    allocation: Allocation = NOTHING


@given(st.permutations(PARTS), st.integers(0, len(PARTS)))
def test_contributions_merge_in_any_order(parts: list[Allocation], count: int) -> None:
    given_parts = parts[:count]
    merged = combined([*given_parts, NOTHING])

    assert merged == combined(sorted(given_parts, key=PARTS.index))
    assert (merged is NOTHING) == (count == 0)


def test_everything_contributed_is_in_the_merged_allocation() -> None:
    assert combined(PARTS) == Allocation(
        cpuset="0-3",
        cpu_bind_policy="FullPCPUs",
        cpu_exclusive_policy="PCPULevel",
        zones=ZONES.zones,
        devices=(*GPU.devices, *RDMA.devices),
        reservation=RESERVED.reservation,
        quota="team-a",
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_part_contributed_twice_is_a_bug(part: Allocation) -> None:
    with pytest.raises(ContributedTwice):
        combined([part, CPUS, ZONES, GPU, RDMA, RESERVED, CHARGED])


@pytest.mark.parametrize("value", [NOTHING, *PARTS, combined(PARTS)])
def test_an_allocation_survives_json(value: Allocation) -> None:
    assert codec.decode(codec.encode(Holder(value)), Holder).allocation == value


def test_nothing_costs_no_byte_and_comes_back_as_the_same_object() -> None:
    assert codec.encode(Holder()) == b"{}"
    assert codec.decode(b"{}", Holder).allocation is NOTHING


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(codec.DecodeError, match="version"):
        codec.decode(b'{"version":2,"cpuset":"0"}', Allocation)
