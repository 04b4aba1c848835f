#!/usr/bin/env bash
# Compares the naive and improved programs of the book's own repository, as they are, by their GPU time:
#   tests/gpu/programs/book.sh CHECKOUT RESULTS
# CHECKOUT: a checkout of github.com/cfregly/ai-performance-engineering at ca35059 (or its code/**/*.cu, flat, in one
# folder). Needs a GPU and nvcc; runs from the root of this repository. A program that nvcc refuses is told and left out
# with its pair. One run with a case for each pair is stored in RESULTS.
set -uo pipefail
checkout=$(realpath "${1:?usage: tests/gpu/programs/book.sh CHECKOUT RESULTS}")
results=$(realpath -m "${2:?usage: tests/gpu/programs/book.sh CHECKOUT RESULTS}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
mkdir -p "$work/bin" "$work/pairs"

build() {  # PROGRAM
  local source
  source=$(find "$checkout" -name "$1.cu" | head -1)
  nvcc -O3 -std=c++17 -rdc=true -arch="sm_$arch" -o "$work/bin/$1" "$source" -lcudadevrt > "$work/$1.log" 2>&1 \
    || { echo "$1 does not compile: $(grep -m 1 error "$work/$1.log")"; return 1; }
}
pair() {  # NAME BEFORE AFTER
  build "$2" & build "$3" & wait
  [ -x "$work/bin/$2" ] && [ -x "$work/bin/$3" ] || return 0
  cat > "$work/pairs/book-program-$1.yaml" <<YAML
title: "The book's own programs: $2 against $3"
needs: {gpus: 1}
measure: {clock: gpu}
before: {command: ./bin/$2}
after: {command: ./bin/$3}
YAML
}
pair tensor-cores matmul_naive_fp32 matmul_tensorcore_fp16
pair unrolled-reduction reduce_naive reduce_unrolled
pair warp-specialisation add_naive add_specialized
pair streams sequential_small_kernels concurrent_stream_kernels
pair cpu-pipelining cpu_bottleneck_naive cpu_bottleneck_pipelined
pair graph multi_op_naive multi_op_graph
pair fusion add_mul_naive fused_add_mul
pair persistent-kernel compute_naive_loop compute_persistent
pair work-distribution uneven_static uneven_dynamic
pair dynamic-parallelism dp_host_launched dp_device_launched
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
cd "$work" && python3 -m aiperf run pairs/*.yaml --precision standard --no-peaks --results "$results" "${@:3}"
