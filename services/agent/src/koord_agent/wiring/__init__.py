"""Parts of the composition root, and the doctor of a machine."""
