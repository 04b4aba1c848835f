"""The shelf of cheaters: sides that do not do what they claim, their honest twins, and how many of them are caught."""
