"""NATS client: wire format, connection and requests."""
