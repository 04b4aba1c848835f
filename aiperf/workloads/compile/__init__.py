"""The workload family compile: workload.py holds what scenarios name, the other files its parts."""
