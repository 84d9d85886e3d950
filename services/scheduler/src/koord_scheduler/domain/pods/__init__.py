"""What the scheduler knows of pods: records, equivalence classes, constraint kinds, what a pod counts for on a node."""
