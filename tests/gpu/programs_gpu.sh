#!/usr/bin/env bash
# Compares CUDA programs by their GPU time, on a machine with a GPU and nvcc, from the root of the repository:
#   tests/gpu/programs_gpu.sh FOLDER
# Leaves a small file for each pair in FOLDER, and a summary that says what came out as it must. Exit 1 when not all did.
# The records of single processes come first. No pair begins after LIMIT seconds (120); those left out count as missing.
# FULL=1 takes standard precision for the pairs whose ratios are held against events. Where there are two GPUs, a program
# that works on both is compared too. ONLY (an expression such as 'two-gpus.*|bad-.*') leaves all other pairs out; what a
# call before left in FOLDER counts on.
set -uo pipefail
limit=${LIMIT:-120}
folder=${1:?usage: tests/gpu/programs_gpu.sh FOLDER}
mkdir -p "$folder"
folder=$(realpath "$folder")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
nvcc -O2 -arch="sm_$arch" -o "$work/programs" tests/gpu/programs/programs.cu || exit 1
precision=quick
[ -n "${FULL:-}" ] && precision=standard

pair() {  # NAME BEFORE AFTER [OPTION ...]
  local name=$1 before=$2 after=$3 began
  shift 3
  [[ " $name" =~ \ (${ONLY:-.*})$ ]] || return
  if [ "$SECONDS" -gt "$limit" ]; then
    echo "$name: left out after $SECONDS s" | tee -a "$folder/left-out.txt"
    return
  fi
  began=$(date +%s.%N)
  python3 -m aiperf ab "$before" "$after" --name ab --json -q --results "$work/results" "$@" \
    > "$folder/$name.json" 2> "$folder/$name.err"
  echo "$? $(echo "$(date +%s.%N) - $began" | python3 -c 'a, _, b = input().split(); print(float(a) - float(b))')" \
    > "$folder/$name.exit"
  case $name in matmul | uneven | unequal | torch | two-gpus*)
    python3 -m aiperf show latest ab --results "$work/results" > "$folder/$name.show" 2>&1 ;;
  esac
  [ -s "$folder/$name.err" ] || rm -f "$folder/$name.err"
}
gpus=1
by_gpu() {  # NAME BEFORE AFTER [OPTION ...]: programs by GPU time
  local name=$1 before="$work/programs $2" after="$work/programs $3"
  shift 3
  pair "$name" "$before" "$after" --gpus $gpus --clock gpu "$@"
}
events=(--metric 'events: ([0-9.]+) us' --primary gpu_busy)

library=$(python3 -c 'from aiperf.launch.injection import library; print(library("gpu_time"))')
cupti=$(python3 -c 'from aiperf.launch.injection import cupti_places as p; print(":".join(map(str, p())))')
# Records of single processes, for the tests of machines without a GPU.
record() {  # NAME COMMAND ...
  local name=$1
  shift
  mkdir -p "$work/$name"
  CUDA_INJECTION64_PATH=$library AIPERF_CUPTI=$cupti AIPERF_RECORDS=$work/$name "$@" > /dev/null \
    && cp "$work/$name"/gpu-*.tsv "$folder/$name-process.tsv"
}
record one "$work/programs" naive
record torch python3 tests/gpu/programs/torch_matmul.py bfloat16
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$folder/gpu.txt"
echo "cupti: $cupti" >> "$folder/gpu.txt"
by_gpu matmul naive tensor --precision $precision "${events[@]}"
by_gpu uneven uneven-static uneven-dynamic --precision $precision "${events[@]}"
pair torch "python3 tests/gpu/programs/torch_matmul.py float32" "python3 tests/gpu/programs/torch_matmul.py bfloat16" \
  --gpus 1 --clock gpu --range step --primary gpu_busy --precision quick
by_gpu same tensor tensor --precision $precision
by_gpu graph launches graph --precision quick
by_gpu streams sequential concurrent --precision quick
by_gpu unequal sequential concurrent-more --precision quick
by_gpu copies copies pipelined --precision quick --primary gpu_span
by_gpu cluster cluster cluster --precision quick
by_gpu children children tensor --precision quick
if [ "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)" -ge 2 ]; then
  gpus=2
  by_gpu two-gpus two-gpus two-gpus-apart --precision quick
  by_gpu two-gpus-or-one spin-30 two-gpus --precision quick
  gpus=1
fi
for bad in too-large illegal unfinished quick-exit no-kernel no-gpu; do
  by_gpu "bad-$bad" tensor $bad --precision quick
done
# What looking costs: the same program without and with the library, by the wall clock.
pair cost "$work/programs naive" "$work/programs naive" --gpus 1 --precision $precision \
  --env-after "CUDA_INJECTION64_PATH=$library" --env-after "AIPERF_CUPTI=$cupti" --env-after "AIPERF_RECORDS=$work"
python3 tests/gpu/programs/judge.py "$folder" | tee "$folder/summary.txt"
exit "${PIPESTATUS[0]}"
