"""Preemption: make room for a pod or a job by evicting pods of lower priority."""
