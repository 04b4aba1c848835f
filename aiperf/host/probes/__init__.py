"""The probes of ``aiperf doctor``: each reads one fact of the host and judges it. Read-only, no GPU work, no torch."""
