"""The workload family attention: workload.py holds what scenarios name, the other files its parts."""
