"""Unary gRPC over unix sockets: messages, calls, the container runtime."""
