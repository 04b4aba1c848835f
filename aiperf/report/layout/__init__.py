"""How tables and sentences become text: one table for every listing, one choice of format for every command."""
