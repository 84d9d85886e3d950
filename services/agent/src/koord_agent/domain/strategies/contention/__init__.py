"""Pods that disturb others: signals, detection, caps."""
