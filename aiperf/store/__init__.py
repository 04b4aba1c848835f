"""results/<run>/: atomic, versioned records and raw samples. No printing."""
