"""Eviction strategies: who may be evicted, in which order, and how much they release."""
