"""Reports of a round for users: reasons why pods were refused (`refusals`), and the explanation (`round_story`)."""
