"""Workloads in which a small model answers what it can, and a large one the rest.

What must not live here: the models themselves (workloads/decoder), arrivals.
"""
