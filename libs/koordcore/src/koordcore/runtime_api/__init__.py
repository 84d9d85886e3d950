"""Messages of the container runtime (CRI v1) and of runtime hooks, as protobuf classes from tables of field numbers."""
