"""What the ledgers of the nodes must add up to."""

from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.reserved_amounts import taken_from_reservations


def ledger_sum(state: ClusterState) -> dict[str, dict[str, int]]:
    """Node token -> sum of the requests of the pods in its ledger, recomputed from scratch."""
    sums: dict[str, dict[str, int]] = {}
    for token, ledger in state.of_kind(NodeLedger).items():
        total: dict[str, int] = {}
        for held in ledger.pods.values():
            for resource, amount in held.requests.items():
                total[resource] = total.get(resource, 0) + amount
        for resource, amount in taken_from_reservations(ledger.pods).items():
            total[resource] -= amount
        total = {resource: amount for resource, amount in total.items() if amount}
        sums[token] = total
    return sums
