"""The facts about the cluster that all profiles and plugins share."""
