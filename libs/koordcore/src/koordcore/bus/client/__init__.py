"""The client of NATS: wire format, connection and requests."""
