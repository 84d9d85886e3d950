"""CPU suppression of best-effort pods."""
