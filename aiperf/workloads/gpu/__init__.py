"""The workload family gpu: workload.py holds what scenarios name, the other files its parts."""
