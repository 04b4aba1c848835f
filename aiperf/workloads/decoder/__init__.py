"""A Llama-shaped decoder, its KV caches and ways to decode with it, shared by the families that produce tokens.

What must not live here: workloads, timing.
"""
