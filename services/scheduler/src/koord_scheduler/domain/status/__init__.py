"""What schedulers have published beside placements."""
