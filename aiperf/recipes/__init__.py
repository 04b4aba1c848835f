"""One file for the work of a command. The only place where stages meet; no measuring, judging or layout of its own."""
