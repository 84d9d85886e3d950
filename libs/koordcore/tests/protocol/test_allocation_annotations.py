"""The annotations of an allocation: what the gateway writes is what whoever meets the pod reads."""

from __future__ import annotations

import json
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_annotations, allocation_of, parse_allocation
from koordcore.values.allocation import (
    NOTHING,
    AllocatedDevice,
    Allocation,
    ReservationUse,
    VirtualFunction,
    ZoneAmounts,
    combined,
)
from koordcore.values.cpuset import format_cpuset
from koordcore.values.invalid import InvalidInput

names = st.text("abcdef-0123456789.:", min_size=1, max_size=12)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "koordinator.sh/gpu-core", "koordinator.sh/rdma"]), st.integers(0, 2**50)
)
functions = st.lists(st.builds(VirtualFunction, st.integers(-1, 9), names), max_size=3).map(tuple)
devices = st.lists(
    st.builds(
        AllocatedDevice,
        type=st.sampled_from(["gpu", "rdma", "fpga"]),
        minor=st.integers(0, 15),
        id=names | st.just(""),
        amounts=amounts,
        virtual_functions=functions,
        template=names | st.just(""),
    ),
    max_size=4,
    unique_by=lambda device: (device.type, device.minor),
).map(tuple)
zones = st.lists(st.builds(ZoneAmounts, st.integers(0, 7), amounts), max_size=3, unique_by=lambda zone: zone.zone)
allocations = st.builds(
    Allocation,
    cpuset=st.frozensets(st.integers(0, 300), max_size=20).map(format_cpuset),
    zones=zones.map(tuple),
    devices=devices,
    reservation=st.none() | st.builds(ReservationUse, name=names, uid=names, amounts=amounts),
    quota=names | st.just(""),
)
policies = st.tuples(st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]), st.sampled_from(["", "PCPULevel"]))
specs = st.fixed_dictionaries(
    {},
    optional={
        "requiredCPUBindPolicy": st.sampled_from(["Default", "FullPCPUs", "SpreadByPCPUs"]),
        "preferredCPUBindPolicy": st.sampled_from(["Default", "FullPCPUs", "SpreadByPCPUs"]),
        "preferredCPUExclusivePolicy": st.sampled_from(["None", "PCPULevel", "NUMANodeLevel"]),
    },
)
_STALE: Final = {
    keys.RESOURCE_STATUS: '{"cpuset":"9"}',
    keys.DEVICE_ALLOCATED: '{"gpu":[{"minor":9,"resources":{}}]}',
    keys.RESERVATION_ALLOCATED: '{"name":"stale","uid":"stale"}',
}


def as_stated(allocation: Allocation) -> Allocation:
    """What of an allocation its annotations state."""
    used = allocation.reservation
    stated = used and msgspec.structs.replace(used, amounts={})
    return combined([msgspec.structs.replace(allocation, quota="", reservation=stated)])


@given(allocations, policies, specs, st.sets(st.sampled_from(sorted(_STALE))))
def test_parse_after_render_is_identity(
    allocation: Allocation, applied: tuple[str, str], spec: dict[str, str], stale: set[str]
) -> None:
    if allocation.cpuset:
        bind, exclusive = applied
        allocation = msgspec.structs.replace(allocation, cpu_bind_policy=bind, cpu_exclusive_policy=exclusive)
    present = {keys.RESOURCE_SPEC: json.dumps(spec), **{key: _STALE[key] for key in stale}}
    bound = {**present, **allocation_annotations(combined([allocation]), present)}

    assert parse_allocation(bound) == allocation_of(bound) == as_stated(allocation)


def test_the_annotations_are_as_the_protocol_spells_them() -> None:
    allocation = Allocation(
        cpuset="0-3",
        cpu_bind_policy="FullPCPUs",
        zones=(ZoneAmounts(0, {"cpu": 4000, "memory": 1 << 30}),),
        devices=(
            AllocatedDevice(type="gpu", minor=0, id="GPU-1", amounts={"koordinator.sh/gpu-core": 50}, template="vir02"),
            AllocatedDevice(
                type="rdma",
                minor=1,
                id="0000:11:00.0",
                amounts={"koordinator.sh/rdma": 1},
                virtual_functions=(VirtualFunction(2, "0000:11:00.2"),),
            ),
        ),
        reservation=ReservationUse(name="r1", uid="u1", amounts={"cpu": 1000}),
        quota="team-a",
    )

    written = allocation_annotations(allocation, {})

    assert {key: json.loads(text) for key, text in written.items()} == {
        keys.RESOURCE_STATUS: {
            "cpuset": "0-3",
            "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "1073741824"}}],
        },
        keys.RESOURCE_SPEC: {"preferredCPUBindPolicy": "FullPCPUs"},
        keys.DEVICE_ALLOCATED: {
            "gpu": [
                {
                    "minor": 0,
                    "resources": {"koordinator.sh/gpu-core": "50"},
                    "id": "GPU-1",
                    "extension": {"gpuSharedResourceTemplate": "vir02"},
                }
            ],
            "rdma": [
                {
                    "minor": 1,
                    "resources": {"koordinator.sh/rdma": "1"},
                    "id": "0000:11:00.0",
                    "extension": {"vfs": [{"minor": 2, "busID": "0000:11:00.2"}]},
                }
            ],
        },
        keys.RESERVATION_ALLOCATED: {"name": "r1", "uid": "u1"},
    }


def test_a_resource_spec_that_names_the_applied_policies_stays_as_the_user_wrote_it() -> None:
    allocation = Allocation(cpuset="0-3", cpu_bind_policy="SpreadByPCPUs")

    assert keys.RESOURCE_SPEC not in allocation_annotations(
        allocation, {keys.RESOURCE_SPEC: '{"requiredCPUBindPolicy": "SpreadByPCPUs"}'}
    )


def test_a_pod_made_with_an_allocation_that_it_was_not_given_loses_it() -> None:
    written = allocation_annotations(NOTHING, _STALE)

    assert written == dict.fromkeys(_STALE, "")
    assert allocation_of(written) is NOTHING
    assert allocation_annotations(NOTHING, {"a": "b"}) == {}


def test_deprecated_names_of_devices_are_read_as_the_present_ones() -> None:
    text = '{"gpu":[{"minor":0,"resources":{"kubernetes.io/gpu-core":"100"}}]}'

    assert allocation_of({keys.DEVICE_ALLOCATED: text}).devices[0].amounts == {"koordinator.sh/gpu-core": 100}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (keys.RESOURCE_STATUS, "{"),
        (keys.RESOURCE_STATUS, '{"cpuset":"0-"}'),
        (keys.RESOURCE_STATUS, '{"numaNodeResources":[{"node":0,"resources":{"cpu":"x"}}]}'),
        (keys.DEVICE_ALLOCATED, '{"gpu":[{"resources":{}}]}'),
        (keys.RESERVATION_ALLOCATED, '{"name":"r"}'),
    ],
)
def test_an_invalid_annotation_is_named_and_ignored_on_its_own(key: str, text: str) -> None:
    others = {other: stale for other, stale in _STALE.items() if other != key}

    with pytest.raises(InvalidInput) as raised:
        parse_allocation({**others, key: text})
    assert key in raised.value.path
    assert allocation_of({**others, key: text}) == allocation_of(others)
