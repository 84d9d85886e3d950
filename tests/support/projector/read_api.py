"""A believable cluster behind the read API, and what its facts and its answers are."""

from typing import Any

import httpx
from koordcore.state import ClusterState
from support.projector.synthetic_cluster import SyntheticCluster

CLUSTER = SyntheticCluster(nodes=20, pods=200)


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    """The answer to a request, which must succeed."""
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def folded_cluster(upto: int) -> ClusterState:
    """The fold of the facts of the cluster up to a position."""
    state = ClusterState()
    for event in CLUSTER.facts[:upto]:
        state.apply(event)
    return state
