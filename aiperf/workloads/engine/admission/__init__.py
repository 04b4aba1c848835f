"""Which requests are served at all: one file a rule.

What must not live here: which of those that are served goes next.
"""
