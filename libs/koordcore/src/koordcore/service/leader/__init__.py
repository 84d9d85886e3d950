"""Leader election over a lease: in a KV bucket, as a Kubernetes object, or without election."""
