"""Scenario x axes x settings x host -> cases, or a skip with its reason. Starts nothing."""
