"""The workload family comm: workload.py holds what scenarios name, the other files its parts."""
