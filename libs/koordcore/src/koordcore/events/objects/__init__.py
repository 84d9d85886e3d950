"""Mirrored API objects, and what the gateway to Kubernetes did."""
