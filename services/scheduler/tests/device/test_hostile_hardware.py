"""20,000 malformed Device and NodeResourceTopology objects and pods with hints, through the scheduler's fold.

Pods keep what they hold, nothing is given twice, and valid objects afterwards lead to the same state as without them.
"""

import json
import random
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from koord_scheduler.domain.plugins.device.plugin import DeviceShare
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.state.allocation_rules import violations
from koordcore.values import codec
from koordcore.values.allocation import Allocation
from koordcore.values.invalid import InvalidInput
from support.depth import repeats
from support.hardware import device_document, topology_document
from support.hostile_hardware import malformed
from support.scheduler.numa import lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog, node

DOCUMENTS = repeats(20_000)
PLURALS = {"Device": "devices", "NodeResourceTopology": "noderesourcetopologies"}
MORE = {
    "koordinator.sh/gpu-core": "200",
    "koordinator.sh/gpu-memory-ratio": "200",
    "koordinator.sh/gpu-memory": "160Gi",
    "koordinator.sh/gpu.shared": "200",
    "koordinator.sh/gpu": "200",
    "koordinator.sh/rdma": "100",
}


def _put(log: SmallLog, plural: str, document: Any) -> None:
    log.say("customspec", f"{plural}=n1", CustomObjectObserved(object=document))


def _put_valid(log: SmallLog) -> None:
    _put(log, "devices", device_document("n1", gpus=2, functions=1))
    _put(log, "noderesourcetopologies", topology_document("n1", cores=4))


def _world() -> tuple[SmallLog, Scheduler]:
    log = SmallLog()
    log.add_node(node("n1", cpu="16", memory="128Gi", more=MORE))
    _put_valid(log)
    share = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    log.add_pod(lsr_pod("holder-1", 4, more=share, policy="SingleNUMANode"))
    log.add_pod(lsr_pod("holder-2", 2, more=share))
    scheduler = Scheduler(log)
    scheduler.run()
    return log, scheduler


def _held(scheduler: Scheduler) -> dict[str, Allocation]:
    holders = scheduler.state.assumed.ledgers.holders("n1")
    return {uid: holders[uid].allocation for uid in ("holder-1", "holder-2")}


def _hardware(scheduler: Scheduler) -> tuple[object, ...]:
    """Everything that is known of the devices and CPUs of the node."""
    row = scheduler.state.nodes.row("n1")
    assert row is not None
    filters = scheduler.state.frameworks.first.profile.filters
    (plugin,) = [each for each in filters if isinstance(each, DeviceShare)]
    devices = plugin.states.devices_of(row)
    assert devices is not None
    columns = {
        name: (column.cards[row], tuple(np.asarray(column.fitting({}, np.array([row], np.intp))).tolist()))
        for name, column in plugin.states.columns.items()
    }
    book = scheduler.state.books.numa.book(row)
    use = deepcopy((devices.use.amounts, devices.use.functions))
    layout = book.hardware.layout
    assert layout is not None
    return devices.inventory, use, columns, layout.places, replace(book.hardware, layout=None)


def _as_pod(document: dict[str, Any], uid: str) -> Pod | None:
    """Return the pod as an API server would store it; None if an API server refuses it."""
    try:
        found = pod_from_json({**document, "metadata": {**document["metadata"], "name": uid, "uid": uid}})
    except (codec.DecodeError, InvalidInput, KeyError, TypeError, ValueError):
        return None
    return found if found.metadata.namespace else None


@pytest.mark.fuzz
def test_malformed_hardware_leaves_what_pods_hold_untouched() -> None:
    rng = random.Random(20261123)
    log, scheduler = _world()
    held, whole = _held(scheduler), _hardware(scheduler)
    assert all(each.cpuset and each.devices for each in held.values())
    reasons = folded = 0
    for number in range(DOCUMENTS):
        document = malformed(rng)
        if not isinstance(document, dict):
            continue
        stored = cast("dict[str, Any]", document)
        plural = PLURALS.get(str(stored.get("kind")))
        pod = None if plural else _as_pod(stored, f"hostile-{number}")
        if plural is not None:
            _put(log, plural, json.loads(json.dumps(stored)))
        elif pod is not None:
            log.add_pod(pod)
        else:
            continue
        folded += 1
        scheduler.follow()
        for warning in scheduler.state.cluster.warnings:
            assert warning
            assert len(warning) < 2_000
        reasons += bool(scheduler.state.cluster.warnings)
        scheduler.state.cluster.warnings.clear()
        if number % 20 == 0:
            scheduler.run(float(number))
            assert violations(scheduler.state.assumed.ledgers.holders("n1")) == []
        assert _held(scheduler) == held
        for uid in [uid for uid in scheduler.state.pods if uid.startswith("hostile-")]:
            log.remove_pod(uid)
    assert folded > DOCUMENTS // 2
    assert reasons > DOCUMENTS // 10
    _put_valid(log)
    for now in (30_000.0, 60_000.0):
        scheduler.run(now)
    assert set(scheduler.state.assumed.ledgers.holders("n1")) == set(held)
    assert _held(scheduler) == held
    assert _hardware(scheduler) == whole
