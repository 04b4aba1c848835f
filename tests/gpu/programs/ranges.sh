#!/usr/bin/env bash
# Profiles programs that are not aiperf's by their own push/pop ranges, under every nsys that is there, also the copy
# inside Nsight Compute: a Python program, and a CUDA program that is named by a relative path. On a machine with a GPU
# and nvcc, from the root of the repository:
#   tests/gpu/programs/ranges.sh FOLDER
# Leaves summary.txt, and the profile of each as JSON, in FOLDER. Exit 1 when a range was not found, or none was sought.
set -uo pipefail
folder=$(realpath -m "${1:?usage: tests/gpu/programs/ranges.sh FOLDER}")
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
nvcc -O2 -arch="sm_$arch" -o "$work/programs" tests/gpu/programs/programs.cu || exit 1
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
cd "$work" || exit 1

bad=0
profile() {  # NAME RANGE KERNELS COMMAND ...
  local name=$1 range=$2 kernels=$3
  shift 3
  timeout 120 python3 -m aiperf profile --with nsys --range "$range" --json -q --results results -- "$@" \
    > "$folder/$name.json" 2> "$folder/$name.err"
  python3 - "$folder/$name.json" "$name" "$range" "$kernels" <<'PY' || bad=1
import json, sys
path, name, range_, least = sys.argv[1:]
try:
    (profile,) = json.load(open(path))
except ValueError:
    sys.exit(f"BAD {name}: no profile; see {name}.err")
seen = sum(row["count"] for row in profile["rows"] if row["kind"] == "kernel" and row["side"] == range_)
(artefact,) = profile["artefacts"]
said = f"{artefact['status']} {artefact['version']} {artefact['reason']}".strip()
if artefact["status"] == "skipped":
    sys.exit(print(f"left out {name}: {artefact['reason']}"))
print(f"{'ok ' if seen >= int(least) else 'BAD'} {name}: {seen} kernels in its ranges {range_}; nsys: {said}")
sys.exit(seen < int(least))
PY
}
under() {  # NAME
  profile "$1-python" step 10 python3 "$root/tests/gpu/programs/torch_matmul.py" float32
  profile "$1-relative-path" timed 20 ./programs tensor
}
{
  under found
  copies=0
  for AIPERF_NSYS in /opt/nvidia/nsight-compute/*/host/target-linux-*/nsys \
    /usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys; do
    [ -x "$AIPERF_NSYS" ] || continue
    export AIPERF_NSYS
    copies=$((copies + 1))
    echo "$AIPERF_NSYS"
    under "compute-$copies"
  done
  [ "$copies" -gt 0 ] || echo "left out: no copy inside Nsight Compute"
} > "$folder/summary.txt" 2>&1
cat "$folder/summary.txt"
find "$folder" -name '*.err' -empty -delete
grep -q '^ok' "$folder/summary.txt" && exit "$bad"
exit 1
