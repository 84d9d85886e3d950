"""Checks of slo-controller-config that need no cluster state."""
