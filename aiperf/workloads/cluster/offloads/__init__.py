"""Whether a prefill worker computes a prompt, or the worker that decodes it: one file a rule.

What must not live here: which worker of several it is.
"""
