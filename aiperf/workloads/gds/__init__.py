"""The workload family gds: workload.py holds what scenarios name, the other files its parts."""
