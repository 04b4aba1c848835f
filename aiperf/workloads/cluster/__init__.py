"""A cluster of serving engines: every rank is a worker, the first one routes, keys and values move between them.

What must not live here: an engine and its policies (workloads/engine), the model (workloads/decoder).
"""
