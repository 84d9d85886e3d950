"""Adapters of `koordcore.ports`: on JetStream, and in memory for tests."""
