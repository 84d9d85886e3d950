"""What nodes hold: accounting of pods on nodes, the ledger of their sources, populations, images, policies."""
