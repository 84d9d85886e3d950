"""Eviction: candidates, their order, and the amounts to release."""
