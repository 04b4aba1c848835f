"""Files of other tools that more than one room reads: what is in them, not what becomes of it."""
