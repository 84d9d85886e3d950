"""A cluster for migration jobs in the service."""

import pytest
from support.descheduler.jobs import REPLICAS
from support.descheduler.world import World


@pytest.fixture
async def world() -> World:
    """Return a cluster whose workload has so many replicas that two of them may be unavailable."""
    world = World()
    await world.begin()
    await world.replicas(REPLICAS)
    return world
