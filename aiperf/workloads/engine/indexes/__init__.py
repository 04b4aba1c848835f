"""Indexes of known prompts, asked how many tokens a new one has in common with any of them: one file an index.

What must not live here: pages and who holds them (prefix.py), making prompts.
"""
