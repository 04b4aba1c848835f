"""Parts that several workload families use."""
