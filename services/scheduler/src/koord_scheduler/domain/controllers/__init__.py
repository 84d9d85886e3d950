"""What the leader publishes beside placements, and pages about nodes for a person."""
