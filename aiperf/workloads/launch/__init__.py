"""The workload family launch: workload.py holds what scenarios name, the other files its parts."""
