"""The workload family linalg: workload.py holds what scenarios name, the other files its parts."""
