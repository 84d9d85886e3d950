"""Accounting of pods on nodes, the ledger of its sources, populations, images, volumes and policies."""
