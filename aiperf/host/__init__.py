"""Facts about this machine: probes, findings, peaks, telemetry. Read-only: never changes a setting."""
