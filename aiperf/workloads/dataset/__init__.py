"""The workload family dataset: workload.py holds what scenarios name, the other files its parts."""
