"""How roles change while requests come in: one file a rule.

What must not live here: which worker gets a request.
"""
