"""Turn computed batch resources into published ones: normalize cpu, and deduct the amounts that other systems use.

Other systems (third parties) state in an annotation of the node which batch resources they use.

Source:
    manager spec, 5.5
"""

from collections.abc import Mapping
from typing import NamedTuple

from koordcore.protocol.amplification import parse_normalization_text
from koordcore.protocol.annotations.node import parse_third_party_allocated
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.node_resources.amounts import Amount

_MILLI = 1000


class PublishedBatch(NamedTuple):
    """Batch resources of a node as they are published.

    Attributes:
        batch: The resources, or None to remove them from the node.
        origin: The resources before the deduction (annotation originExtendedAllocatable).
        third_party: The deducted amounts, which other systems hold.
    """

    batch: Amount | None
    origin: Amount
    third_party: Amount


def publish_batch(
    computed: Amount | None, normalization_text: str | None, annotations: Mapping[str, str]
) -> PublishedBatch:
    """Normalize the computed batch cpu, deduct what other systems hold, and return the batch resources to publish.

    Args:
        computed: The computed resources, or None to withdraw them.
        normalization_text: Cpu normalization ratio of the node as text. If None or invalid, cpu is not changed.
        annotations: Annotations of the node; a malformed `thirdPartyAllocations` is ignored.

    Source:
        manager spec, 5.5; vectors manager/batch_publish
    """
    if computed is None:
        return PublishedBatch(None, Amount(), Amount())
    origin = Amount(normalized(computed.cpu, normalization_text), computed.memory)
    try:
        held = parse_third_party_allocated(annotations, PriorityBand.BATCH)
    except InvalidInput:
        held = {}
    third_party = Amount(
        held[BATCH_CPU].value() if BATCH_CPU in held else 0, held[BATCH_MEMORY].value() if BATCH_MEMORY in held else 0
    )
    left = Amount(max(origin.cpu - third_party.cpu, 0), max(origin.memory - third_party.memory, 0))
    return PublishedBatch(left, origin, third_party)


def normalized(cpu_milli: int, normalization_text: str | None) -> int:
    """Return milli-cores times the cpu normalization ratio, rounded up.

    A ratio that is missing, invalid or below 1 counts as 1. The product is truncated to a millionth of a core before
    it is rounded up.

    Source:
        manager spec, 5.5 (2), 1.1 (mulmilli on the quantity that stands for milli-cores)
    """
    ratio = parse_normalization_text(normalization_text) if normalization_text else None
    if ratio is None or ratio <= 1:
        return cpu_milli
    return -(-int(float(cpu_milli * _MILLI) * ratio) // _MILLI)
