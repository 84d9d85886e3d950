"""Do the work of Kubernetes' controllers in a cluster without an API server."""
