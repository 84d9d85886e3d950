"""Docker mode: the proxy in front of dockerd. Its libraries are loaded only in this mode."""
