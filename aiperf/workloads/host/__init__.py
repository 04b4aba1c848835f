"""The workload family host: workload.py holds what scenarios name, the other files its parts."""
