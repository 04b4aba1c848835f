"""The workload family moe: workload.py holds what scenarios name, the other files its parts."""
