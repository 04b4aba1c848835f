from aiperf import compare
try: print(compare(lambda: 1, lambda: 2))
except Exception as e: print(type(e), e)
def f(): return sum(range(10000))
def g(): return 49995000
r = compare(f, g, precision="quick"); print(r)
