"""Room for a pod or a job at the cost of pods of lower priority."""
