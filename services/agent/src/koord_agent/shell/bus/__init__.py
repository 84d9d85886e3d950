"""Adapters for the bus: desired state, facts and reports."""
