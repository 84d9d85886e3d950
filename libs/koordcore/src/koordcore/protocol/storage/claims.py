"""The PersistentVolumeClaims that a pod uses.

Source:
    scheduler-core spec, 5.9; https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/
"""

from collections.abc import Iterator

from koordcore.protocol.objects import Pod


def claims_of(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim of a pod, and whether it belongs to a generic ephemeral volume.

    The claim of an ephemeral volume has the name `<pod>-<volume>`, and a controller creates it for the pod.
    """
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def has_claims(pod: Pod) -> bool:
    """Return whether a pod uses any claim."""
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in pod.spec.volumes
    )


def has_ephemeral_claims(pod: Pod) -> bool:
    """Return whether a pod uses a claim whose name contains the name of the pod."""
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)
