"""What the sides run, one module per family. No timing, no printing."""
