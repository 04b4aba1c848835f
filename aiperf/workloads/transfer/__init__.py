"""The workload family transfer: workload.py holds what scenarios name, the other files its parts."""
