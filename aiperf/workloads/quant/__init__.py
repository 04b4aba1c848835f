"""The workload family quant: workload.py holds what scenarios name, the other files its parts."""
