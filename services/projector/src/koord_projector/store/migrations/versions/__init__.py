"""One module per version, applied in the order of their `down_revision`."""
