"""What the scheduler publishes besides placements."""
