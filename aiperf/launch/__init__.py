"""Starts, talks to, times out and kills workers. No statistics."""
