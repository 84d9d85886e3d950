"""Preemption: the search for pods to evict."""
