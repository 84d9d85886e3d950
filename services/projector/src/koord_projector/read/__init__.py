"""The read API: one module per subject, what they share (`endpoint`, `moments`), and all endpoints (`api`)."""
