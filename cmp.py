import err
from aiperf import compare
r = compare(err.ok, err.wrong, setup=err.data, precision="quick")
print(r); print(r.verdict, r.ratio, r.interval)
