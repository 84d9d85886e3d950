"""How one event changes the state of its aggregate; one module for each who says such events, all in `registry`."""
