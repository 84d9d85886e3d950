"""The trees of quotas: sums over pods, division of a parent's resources, admission of pods."""
