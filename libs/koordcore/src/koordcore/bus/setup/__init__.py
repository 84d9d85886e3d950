"""Configuration of the NATS server: streams, consumers, users and their permissions."""
