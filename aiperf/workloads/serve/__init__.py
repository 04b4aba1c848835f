"""Workloads that put a load on a server of language models.

What must not live here: the servers' own engines, timing of anything but requests.
"""
