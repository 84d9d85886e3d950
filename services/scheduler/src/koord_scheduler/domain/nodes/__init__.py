"""Pods on nodes: accounting, ledgers by source, counts by kind; and images, volumes and policies of nodes."""
