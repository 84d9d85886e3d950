"""The built-in plugins of the scheduler, one module each. `registry` lists them."""
