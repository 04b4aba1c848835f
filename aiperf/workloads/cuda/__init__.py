"""The workload family cuda: workload.py holds what scenarios name, the other files its parts."""
