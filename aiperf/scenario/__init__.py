"""YAML -> Scenario: schema, strict loading, finding. Knows no host and no torch."""
