"""One file per command: flags -> settings -> recipe. No logic."""
