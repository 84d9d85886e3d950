"""Unary gRPC over unix sockets, and the container runtime behind one."""
