"""Find parts of documents about CPUs, zones and devices that the scheduler refuses or ignores.

    Pod                     device requests that no node can meet; CPU policies that its QoS class does not have
    Device                  entries and partition tables that are ignored
    NodeResourceTopology    zones and annotations that are ignored

Source:
    scheduler-fine-grained spec, 1.1, 1.3, 2.1, 2.2, 2.7
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.devices import read_gpu_partitions
from koordcore.protocol.hardware.device_requests import device_requests
from koordcore.protocol.hardware.devices import read_devices
from koordcore.protocol.objects import Pod, object_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.qos import QosClass, qos_raw
from koordcore.stories.hardware import node_hardware
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.documents.warnings.any_document import TEMPLATED, object_of

_REFUSED: Final = "the scheduler refuses the pod"
_BINDING: Final = (QosClass.LSE, QosClass.LSR)


def hardware_warnings(document: object) -> Iterator[str]:
    """Yield a sentence `field: rule, value; effect` for each part that the scheduler refuses or ignores."""
    fields = object_of(document)
    kind = fields.get("kind")
    if kind == "Pod":
        yield from _pod_warnings(fields, "")
    elif kind in TEMPLATED:
        yield from _pod_warnings(object_of(object_of(fields.get("spec")).get("template")), "spec.template.")
    elif kind == "Device":
        yield from (f"{error.sentence()}; the entry is ignored" for error in read_devices(fields)[1])
        yield from _of_partitions(fields)
    elif kind == "NodeResourceTopology":
        hardware = node_hardware("", node=None, topology=fields, device=None, pods={})
        yield from (f"{problem.removeprefix('NodeResourceTopology: ')}; it is ignored" for problem in hardware.problems)


def _pod_warnings(fields: Mapping[str, object], at: str) -> Iterator[str]:
    try:
        pod = object_from_json(fields, Pod)
        requests = pod_requests(pod)
    except (codec.DecodeError, InvalidInput):
        return  # the reader of manifests refuses the document and says why
    try:
        device_requests(requests)
    except InvalidInput as error:
        resources = f"{at}spec.containers[*].resources"
        # An error about the combination names the requests; one about an amount names the resource.
        yield f"{error.at(resources if error.path == 'requests' else f'{resources}.requests')}; {_REFUSED}"
    annotations = pod.metadata.annotations
    if keys.RESOURCE_SPEC in annotations and qos_raw(pod) not in _BINDING:
        place = f"{at}metadata.annotations[{keys.RESOURCE_SPEC}]"
        classes = " or ".join(_BINDING)
        yield f"{place}: only pods of QoS class {classes} own CPUs, got {qos_raw(pod) or 'none'}; it is ignored"


def _of_partitions(fields: Mapping[str, object]) -> Iterator[str]:
    written = object_of(object_of(fields.get("metadata")).get("annotations"))
    annotations = {key: value for key, value in written.items() if isinstance(value, str)}
    try:
        ignored = read_gpu_partitions(annotations)[1]
    except InvalidInput as error:
        yield f"{error.at('metadata.annotations')}; the table is ignored"
    else:
        yield from (f"{error.at('metadata.annotations')}; the partition is ignored" for error in ignored)
