"""Which request goes on at another worker while it is answered: one file a rule.

What must not live here: where a request begins (routes/), moving its keys and values.
"""
