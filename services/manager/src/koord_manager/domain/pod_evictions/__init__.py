"""Eviction requests of node agents, and the execution of evictions under disruption budgets."""
