"""`koord replay`: the state rebuilt from the log, and what-if runs."""
