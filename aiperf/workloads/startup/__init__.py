"""The workload family startup: workload.py holds what scenarios name, the other files its parts."""
