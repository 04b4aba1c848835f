"""Workloads in which a language model produces tokens.

What must not live here: the model itself (workloads/decoder), serving under arrivals.
"""
