"""Functions that apply one event to the state of its aggregate, by writer or subject; all are listed in `registry`."""
