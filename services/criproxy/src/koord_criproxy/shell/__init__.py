"""Impure part of the CRI proxy: gRPC server and clients, the registration folder, failover."""
