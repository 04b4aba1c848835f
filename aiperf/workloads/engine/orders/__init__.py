"""Which waiting requests go next: one file an order.

What must not live here: how many go together, who is admitted.
"""
