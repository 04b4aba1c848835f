"""The workload family checkpoint: workload.py holds what scenarios name, the other files its parts."""
