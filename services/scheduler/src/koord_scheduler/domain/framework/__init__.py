"""The plugin interface: protocols of all extension points, and the profile, which lists the plugins."""
