"""`koord demo`: a real trace on a live cluster. Every invariant is recomputed from the log."""
