"""The workload family tensor: workload.py holds what scenarios name, the other files its parts."""
