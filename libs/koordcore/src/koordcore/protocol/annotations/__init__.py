"""Parsers of single labels and annotations, one module per subject.

Each parser takes the labels or annotations of an object. It returns the default if the key is absent, and raises
`InvalidInput` with the key if the value is invalid. Structured values are decoded by `lenient_json`. Source: protocol
spec, 4 and 5.
"""
