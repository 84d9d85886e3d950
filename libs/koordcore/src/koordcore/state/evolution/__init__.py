"""Functions that apply one event to the state of its aggregate: one module per writer, listed in `registry`."""
