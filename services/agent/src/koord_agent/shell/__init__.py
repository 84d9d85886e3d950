"""Adapters of the agent: the machine, the bus, the local store."""
