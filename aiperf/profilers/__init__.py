"""nsys, ncu, torch.profiler, perf: finding them, commanding them, reading what they wrote. Nothing here is timed."""
