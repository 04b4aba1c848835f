"""The workload family stream: workload.py holds what scenarios name, the other files its parts."""
