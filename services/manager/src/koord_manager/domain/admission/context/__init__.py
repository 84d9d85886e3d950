"""Cluster state that admission reads besides the object: profiles, quotas, required labels."""
