"""The workload family native: workload.py holds what scenarios name, the other files its parts."""
