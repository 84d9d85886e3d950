"""Cluster state that admission reads besides the object: profiles, quotas, and labels that pods must have."""
