"""Which requests go through the model together: one file a policy.

What must not live here: the order of the queue, who is admitted.
"""
