"""Groups of pods in Kubernetes' own Workload API, which Koordinator's gangs replace here."""

from koordcore.protocol.annotations.gang import gang_name
from koordcore.protocol.objects import Pod


def native_group_field(pod: Pod) -> str:
    """Return the field of the spec that puts a pod into a group of the Workload API: `workloadRef` (Kubernetes 1.35) or
    `schedulingGroup` (1.36 on). "" if there is none, or if the pod also names a gang of Koordinator, as the member of
    which it is placed.
    """
    field = "schedulingGroup" if pod.spec.scheduling_group is not None else ""
    field = "workloadRef" if pod.spec.workload_ref is not None else field
    return "" if gang_name(pod.metadata.labels, pod.metadata.annotations) else field
