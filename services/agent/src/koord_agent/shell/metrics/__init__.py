"""Prometheus metrics of the agent and of its nodes."""
