"""The workload family measure: workload.py holds what scenarios name, the other files its parts."""
