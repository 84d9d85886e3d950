"""Volumes of Kubernetes: claims, volumes, storage classes, and what CSI drivers say about nodes."""
