"""Eviction requests: from node agents, and their execution under disruption budgets."""
