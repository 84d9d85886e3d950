"""The cycle of one node's agent."""
