"""Unary gRPC over unix sockets: messages, calls, and the container runtime."""
