"""Prediction of the real CPU and memory usage of pods, and of the requests that they will not use."""
