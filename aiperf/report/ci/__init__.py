"""What a run or a gate says to machines: JUnit, GitHub, GitLab, dashboards; each format reads the same entries."""
