"""The workload family parallel: workload.py holds what scenarios name, the other files its parts."""
