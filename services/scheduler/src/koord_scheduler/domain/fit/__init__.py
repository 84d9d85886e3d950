"""Answers capacity questions: where would these pods land now, and what runs out first?

`answering` is the door. The caller passes a state that nothing else uses, for example in a forked process.
"""
