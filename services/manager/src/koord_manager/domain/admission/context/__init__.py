"""Cluster state that admission reads besides the submitted object: profiles, quotas, and rules about labels of pods."""
