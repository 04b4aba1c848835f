"""The workload family memory: workload.py holds what scenarios name, the other files its parts."""
