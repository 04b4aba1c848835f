#!/usr/bin/env bash
# Runs the GPU tests and then scenarios, from the root of the repository, with everything under one folder:
#   tests/gpu/run_on_device.sh FOLDER [SCENARIO|TAG|PATH ...]
# Without names all scenarios of one GPU run, and those of two GPUs where two are there. PRECISION, BUDGET and
# SKIP_TESTS=1 are read from the environment. Exit: 1 when a test fails, else that of aiperf run.
set -uo pipefail
folder=${1:?usage: tests/gpu/run_on_device.sh FOLDER [SCENARIO ...]}
shift
mkdir -p "$folder"
tests=0
if [ "${SKIP_TESTS:-0}" != 1 ]; then
  python3 -m pytest tests/gpu --timeout=240 --timeout-method=thread --durations=8 2>&1 | tee "$folder/pytest.log"
  tests=${PIPESTATUS[0]}
fi
if [ $# -eq 0 ]; then
  set -- scenarios/gpu/*.yaml
  gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
  [ "$gpus" -ge 2 ] && set -- "$@" scenarios/gpu2/*.yaml
fi
python3 -m aiperf run "$@" --precision "${PRECISION:-quick}" ${BUDGET:+--budget "$BUDGET"} \
  --results "$folder/results" 2>&1 | tee "$folder/run.log"
ran=${PIPESTATUS[0]}
[ "$tests" -eq 0 ] || exit 1
exit "$ran"
