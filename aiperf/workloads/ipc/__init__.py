"""The workload family ipc: workload.py holds what scenarios name, the other files its parts."""
