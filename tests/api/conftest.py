"""pytest's own fixture for running pytest in a folder."""

pytest_plugins = ["pytester"]
