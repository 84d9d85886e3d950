"""Annotations for the device plugins of card vendors, and the locks of nodes that some of these plugins need.

A device plugin of the kubelet reads from annotations of the pod which cards the scheduler chose. Some plugins handle
one pod at a time. They find this pod by an annotation of the node, the lock: the gateway sets it before it binds the
pod, and the plugin removes it.

Source: scheduler-fine-grained spec, 2.14.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values import codec
from koordcore.values.allocation import AllocatedDevice
from koordcore.values.timestamps import rfc3339

BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
PREDICATE_TIME: Final = "predicate-time"
HUAWEI_NPU_CORE: Final = "huawei.com/npu-core"
HUAWEI_ASCEND_310P: Final = "huawei.com/Ascend310P"
CAMBRICON_PROFILE: Final = "CAMBRICON_DSMLU_PROFILE"
CAMBRICON_ASSIGNED: Final = "CAMBRICON_DSMLU_ASSIGHED"  # the spelling of the vendor's plugin
METAX_DEVICES: Final = "metax-tech.com/gpu-devices-allocated"
HAMI_CORE: Final = "HAMi-core"
LOCK_SECONDS: Final = 300
_MIB: Final = 1 << 20
_CAMBRICON_UNIT: Final = 256 * _MIB
_LOCK_OF: Final = {CAMBRICON_PROFILE: keys.CAMBRICON_DSMLU_LOCK, METAX_DEVICES: keys.HAMI_MUTEX_LOCK}
# Keys that `vendor_annotations` returns and that are labels of the pod instead of annotations.
POD_LABELS: Final = frozenset({keys.HAMI_VGPU_NODE})


def vendor_annotations(
    devices: Sequence[AllocatedDevice], *, vendor: str, isolation_provider: str, node: str, at_ns: int
) -> dict[str, str]:
    """Return the annotations of a pod from which the node's device plugins learn which devices it got. Empty if the pod
    has no GPU.

    Args:
        vendor: Vendor of the node's GPUs, from its label.
        isolation_provider: Provider that isolates shared GPUs, from the pod's label; "" for none.
        at_ns: Time of the placement in Unix nanoseconds.
    """
    gpus = sorted((each for each in devices if each.type == GPU_TYPE), key=lambda each: each.minor)
    if not gpus:
        return {}
    minors = ",".join(str(each.minor) for each in gpus)
    found = {BIND_TIMESTAMP: str(at_ns), GPU_MINORS: minors}
    is_shared = any(each.amounts.get(GPU_MEMORY_RATIO, WHOLE) < WHOLE for each in gpus)
    match vendor:
        case "huawei":
            template = gpus[0].template
            found[PREDICATE_TIME] = str(at_ns)
            found[HUAWEI_NPU_CORE] = f"{gpus[0].minor}-{template}" if template else minors
            found[HUAWEI_ASCEND_310P] = ",".join(f"Ascend310P-{each.minor}" for each in gpus)
        case "cambricon" if is_shared:
            amounts = gpus[0].amounts
            memory = amounts.get(GPU_MEMORY, 0) // _CAMBRICON_UNIT
            found[CAMBRICON_PROFILE] = f"{gpus[0].minor}_{amounts.get(GPU_CORE, 0)}_{memory}"
            found[CAMBRICON_ASSIGNED] = "false"
        case "metax" if is_shared:
            found[METAX_DEVICES] = codec.encode([[_metax_device(each) for each in gpus]]).decode()
        case _:
            pass
    if is_shared and isolation_provider == HAMI_CORE:
        found[keys.HAMI_VGPU_NODE] = node
    return found


def _metax_device(device: AllocatedDevice) -> dict[str, object]:
    amounts = device.amounts
    return {"uuid": device.id, "compute": amounts.get(GPU_CORE, 0), "vRam": amounts.get(GPU_MEMORY, 0) // _MIB}


def node_lock_of(annotations: Mapping[str, str]) -> str:
    """Return the key of the node annotation that serves as lock when a pod with these annotations is bound. "" if the
    device plugin of the pod's vendor needs no lock.
    """
    return next((lock for key, lock in _LOCK_OF.items() if key in annotations), "")


class NodeLock(NamedTuple):
    """The lock of a node: which pod its device plugin handles, and since when."""

    since: datetime  # Time at which the lock was set
    namespace: str
    name: str

    def text(self) -> str:
        """Return the lock as value of the node's annotation: `<RFC 3339 time>,<namespace>,<pod>`."""
        return f"{rfc3339(self.since)},{self.namespace},{self.name}"

    def is_expired(self, now: datetime) -> bool:
        """Return whether the lock is older than five minutes."""
        return now - self.since > timedelta(seconds=LOCK_SECONDS)


def parse_node_lock(text: str) -> NodeLock | None:
    """Return the lock in an annotation of a node; None if the text is not `<RFC 3339 time>,<namespace>,<pod>`."""
    parts = text.split(",")
    if len(parts) != 3:
        return None
    try:
        since = datetime.fromisoformat(parts[0])
    except ValueError:
        return None
    return None if since.tzinfo is None else NodeLock(since, parts[1], parts[2])
