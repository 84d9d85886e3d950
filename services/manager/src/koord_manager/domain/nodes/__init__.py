"""Policies of nodes as facts, and the desired state of each node's agent."""
