"""The workload family storage: workload.py holds what scenarios name, the other files its parts."""
