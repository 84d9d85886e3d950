"""The demo: it places a real trace on a live cluster and checks every rule of correctness from the log alone."""
