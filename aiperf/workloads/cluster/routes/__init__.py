"""Which worker gets a request: one file a route.

What must not live here: which workers may take it, sending it.
"""
