"""A gang whose ranks live on several nodes: who is who, the links between them, and what each node's process does."""
