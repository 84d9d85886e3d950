"""Configuration of the server: streams, consumers, users and their permissions."""
