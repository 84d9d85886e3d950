"""The plugins of the descheduler. Only `registry` imports them."""
