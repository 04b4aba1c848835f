"""The tables over stored runs that ``aiperf query`` and ``aiperf export`` show, each declared once."""
