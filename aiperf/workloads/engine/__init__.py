"""A small serving engine over the decoder: requests in, tokens out, with policies that can be exchanged.

What must not live here: the model (workloads/decoder), servers and clients of other programs (workloads/serve).
"""
