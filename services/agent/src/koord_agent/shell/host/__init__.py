"""Access to a real machine behind the protocol `Host`."""
