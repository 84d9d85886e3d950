"""Check slo-controller-config without cluster state."""
