"""Records -> console, Markdown, CSV, JSON. Decides nothing."""
