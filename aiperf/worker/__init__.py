"""The child process: set up, warm up, time, check, obey the parent. Never imports the parent's rooms."""
