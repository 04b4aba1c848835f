"""Which rows and columns each command shows."""
