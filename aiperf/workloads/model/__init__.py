"""The workload family model: workload.py holds what scenarios name, the other files its parts."""
