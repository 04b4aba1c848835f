#!/usr/bin/env bash
# Compares CUDA programs by their GPU time, on a machine with a GPU and nvcc, from the root of the repository:
#   tests/gpu/programs_gpu.sh FOLDER
# Leaves a small file for each pair in FOLDER, and a summary that says what came out as it must. Exit 1 when not all did.
# Takes some three minutes; FAST=1 takes quick precision for all, some two.
set -uo pipefail
folder=${1:?usage: tests/gpu/programs_gpu.sh FOLDER}
mkdir -p "$folder"
folder=$(realpath "$folder")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
nvcc -O2 -arch="sm_$arch" -o "$work/programs" tests/gpu/programs/programs.cu || exit 1
precision=standard
[ -n "${FAST:-}" ] && precision=quick

pair() {  # NAME BEFORE AFTER [OPTION ...]
  local name=$1 before=$2 after=$3 began
  shift 3
  began=$(date +%s.%N)
  python3 -m aiperf ab --before "$before" --after "$after" --json -q --results "$work/results" "$@" \
    > "$folder/$name.json" 2> "$folder/$name.err"
  echo "$? $(echo "$(date +%s.%N) - $began" | python3 -c 'a, _, b = input().split(); print(float(a) - float(b))')" \
    > "$folder/$name.exit"
  python3 -m aiperf show latest ab --results "$work/results" > "$folder/$name.show" 2>&1
  [ -s "$folder/$name.err" ] || rm -f "$folder/$name.err"
}
by_gpu() {  # NAME BEFORE AFTER [OPTION ...]: programs by GPU time
  local name=$1 before="$work/programs $2" after="$work/programs $3"
  shift 3
  pair "$name" "$before" "$after" --gpus 1 --clock gpu "$@"
}
events=(--metric 'events: ([0-9.]+) us' --primary gpu_busy)

by_gpu matmul naive tensor --precision $precision "${events[@]}"
by_gpu uneven uneven-static uneven-dynamic --precision $precision "${events[@]}"
by_gpu same tensor tensor --precision $precision
by_gpu graph launches graph --precision quick
by_gpu streams sequential concurrent --precision quick
by_gpu unequal sequential concurrent-more --precision quick
by_gpu copies copies pipelined --precision quick --primary gpu_span
by_gpu cluster cluster cluster --precision quick
by_gpu children children tensor --precision quick
for bad in too-large illegal unfinished quick-exit no-kernel no-gpu; do
  by_gpu "bad-$bad" tensor $bad --precision quick
done
pair torch "python3 tests/gpu/programs/torch_matmul.py float32" "python3 tests/gpu/programs/torch_matmul.py bfloat16" \
  --gpus 1 --clock gpu --range step --primary gpu_busy --precision quick
# What looking costs: the same program without and with the library, by the wall clock.
library=$(python3 -c 'from aiperf.launch.injection import library; print(library("gpu_time"))')
cupti=$(python3 -c 'from aiperf.launch.injection import cupti_places as p; print(":".join(map(str, p())))')
pair cost "$work/programs naive" "$work/programs naive" --gpus 1 --precision $precision \
  --env-after "CUDA_INJECTION64_PATH=$library" --env-after "AIPERF_CUPTI=$cupti" --env-after "AIPERF_RECORDS=$work"
cp "$(ls -t "$work"/gpu-*.tsv | head -1)" "$folder/one-process.tsv"
# The file of a process under torch, for the tests of machines without a GPU.
mkdir -p "$work/torch"
CUDA_INJECTION64_PATH=$library AIPERF_CUPTI=$cupti AIPERF_RECORDS=$work/torch \
  python3 tests/gpu/programs/torch_matmul.py bfloat16 && cp "$work"/torch/gpu-*.tsv "$folder/torch-process.tsv"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$folder/gpu.txt"
echo "cupti: $cupti" >> "$folder/gpu.txt"
python3 tests/gpu/programs/judge.py "$folder" | tee "$folder/summary.txt"
exit "${PIPESTATUS[0]}"
