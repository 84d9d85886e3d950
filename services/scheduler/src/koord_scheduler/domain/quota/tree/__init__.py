"""The quota trees: sums, division of a parent's resources, admission."""
