"""Plugins about groups of pods and the queue: gangs, quotas, preemption, scheduling gates."""
