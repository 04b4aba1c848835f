"""A torch program with ranges: torch_matmul.py DTYPE."""

import sys

import torch

dtype = getattr(torch, sys.argv[1])
x = torch.randn(2048, 2048, device="cuda", dtype=dtype)
for _ in range(10):
    with torch.cuda.nvtx.range("step"):
        y = x @ x
        torch.cuda.synchronize()
