"""What users see of a round: why pods were refused (`refusals`), and the round as an explanation (`round_story`)."""
