"""Hooks: the call of a stage, the plug-ins that answer it, and the rules that only hooks and reconcilers need."""
