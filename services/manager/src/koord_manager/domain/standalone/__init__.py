"""The work of Kubernetes controllers for a cluster without an API server."""
