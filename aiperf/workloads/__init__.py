"""What the sides run: one package a family, its private parts and kernels inside. No timing, no printing."""
