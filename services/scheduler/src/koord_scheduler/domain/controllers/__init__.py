"""Statuses that the leader publishes besides placements, and pages about nodes for users."""
