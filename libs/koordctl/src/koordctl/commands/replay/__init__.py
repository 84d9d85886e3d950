"""`koord replay`: rebuild the state from the log, or decide a part of the log again under other settings."""
