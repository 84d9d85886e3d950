"""Plugins of Koordinator and of this project. Their arguments are decoded strictly."""
