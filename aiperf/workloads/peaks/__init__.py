"""The workload family peaks: workload.py holds what scenarios name, the other files its parts."""
