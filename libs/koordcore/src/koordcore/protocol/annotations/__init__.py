"""Parsers of single labels and annotations, one module per subject.

Each takes the label or annotation map of an object, applies the default of an absent value, and raises `InvalidInput`
naming the key for a bad one. Structured values decode through `lenient_json`. source    protocol spec, 4 and 5
"""
