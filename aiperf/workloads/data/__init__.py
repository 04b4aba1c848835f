"""The workload family data: workload.py holds what scenarios name, the other files its parts."""
