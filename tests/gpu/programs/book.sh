#!/usr/bin/env bash
# Compares the naive and improved programs of the book's own repository, as they are, by their GPU time:
#   tests/gpu/programs/book.sh CHECKOUT FOLDER
# CHECKOUT: a checkout of github.com/cfregly/ai-performance-engineering at ca35059 (or its code/**/*.cu, flat, in one
# folder). Needs a GPU and nvcc; runs from the root of this repository, in some 150 s. In FOLDER: results/ with one run
# that has a case for each pair, and table.md, the README's table, with what nvcc refuses and what misses its aim.
# Exit: 1 where a pair misses it without a known reason.
set -uo pipefail
checkout=$(realpath "${1:?usage: tests/gpu/programs/book.sh CHECKOUT FOLDER}")
folder=$(realpath -m "${2:?usage: tests/gpu/programs/book.sh CHECKOUT FOLDER}")
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
mkdir -p "$work/bin" "$work/pairs" "$folder"

# One look at 14 pairs of one launch each, 0.5 s being less than a launch and a half: standard precision has two launches
# in a pair, stops at 6 pairs once the verdict is clear, and leaves a ratio of 25 with 1.2 % to either side.
cat > "$work/estimate.yaml" <<'YAML'
looks: [14]
side_seconds: 0.5
case_seconds: 30
YAML

pairs=()
pair() {  # NAME BEFORE AFTER [MOST PAIRS]
  pairs+=("$1 $2 $3")
  cat > "$work/pairs/book-program-$1.yaml" <<YAML
title: "The book's own programs: $2 against $3"
needs: {gpus: 1}
measure: {clock: gpu, max_pairs: ${4:-40}}
before: {command: ../bin/$2}
after: {command: ../bin/$3}
YAML
}
build() {  # PROGRAM
  local source
  source=$(find "$checkout" -name "$1.cu" | head -1)
  nvcc -O3 -std=c++17 -rdc=true -arch="sm_$arch" -o "$work/bin/$1" "$source" -lcudadevrt > "$work/$1.log" 2>&1
}
pair tensor-cores matmul_naive_fp32 matmul_tensorcore_fp16
pair unrolled-reduction reduce_naive reduce_unrolled
pair warp-specialisation add_naive add_specialized
pair streams sequential_small_kernels concurrent_stream_kernels
pair cpu-pipelining cpu_bottleneck_naive cpu_bottleneck_pipelined
pair graph multi_op_naive multi_op_graph
pair fusion add_mul_naive fused_add_mul
pair persistent-kernel compute_naive_loop compute_persistent
pair work-distribution uneven_static uneven_dynamic 8  # its after takes 1.6 s
pair dynamic-parallelism dp_host_launched dp_device_launched
for one in "${pairs[@]}"; do
  read -r _ before after <<< "$one"
  build "$before" & build "$after" &
done
wait
for one in "${pairs[@]}"; do
  read -r name before after <<< "$one"
  for program in "$before" "$after"; do
    [ -x "$work/bin/$program" ] && continue
    echo "$program does not compile: $(grep -m 1 error "$work/$program.log" | sed "s|.*$program.cu|$program.cu|")"
    rm -f "$work/pairs/book-program-$name.yaml"
  done
done | tee "$folder/refused.txt"
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
(cd "$work" && python3 -m aiperf run pairs/*.yaml --precision estimate.yaml --no-peaks --results "$folder/results" "${@:3}") \
  2>&1 | tee "$folder/run.log"
python3 tests/gpu/programs/book_table.py "$folder" | tee "$folder/table.md"
exit "${PIPESTATUS[0]}"
