#!/usr/bin/env bash
# Runs what needs a GPU, from the root of the repository, with everything under one folder:
#   tests/gpu/run_on_device.sh FOLDER [SCENARIO|TAG|PATH ...]
# Without names all scenarios of one GPU are taken, and those of two GPUs where two are there. Read from the environment:
# STEPS (of: doctor tests peaks run profile cheaters; default "tests run"), PRECISION, BUDGET, TOOLS (of the profile),
# SEEDS (of the cheaters).
# Exit: 1 when a test fails, else that of aiperf run.
set -uo pipefail
folder=${1:?usage: tests/gpu/run_on_device.sh FOLDER [SCENARIO ...]}
shift
mkdir -p "$folder"
steps=" ${STEPS:-tests run} "
wanted() { [[ $steps == *" $1 "* ]]; }
results=(--results "$folder/results")
if [ $# -eq 0 ]; then
  set -- scenarios/gpu/*.yaml
  gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
  [ "$gpus" -ge 2 ] && set -- "$@" scenarios/gpu2/*.yaml
fi
tests=0 ran=0
if wanted doctor; then
  python3 -m aiperf doctor --all --save "$folder/doctor.json" > "$folder/doctor.log" 2>&1
  python3 tests/fixtures/hosts/record.py "${NAME:-one H200}" > "$folder/host.yaml"
fi
if wanted tests; then
  python3 -m pytest tests/gpu --timeout=240 --timeout-method=thread --durations=8 2>&1 | tee "$folder/pytest.log"
  tests=${PIPESTATUS[0]}
fi
wanted peaks && python3 -m aiperf peaks 2>&1 | tee "$folder/peaks.log"
if wanted run; then
  python3 -m aiperf run "$@" --precision "${PRECISION:-quick}" ${BUDGET:+--budget "$BUDGET"} "${results[@]}" 2>&1 |
    tee "$folder/run.log"
  ran=${PIPESTATUS[0]}
fi
if wanted profile; then
  python3 -m aiperf profile --check 2>&1 | tee "$folder/profile-check.log"
  python3 -m aiperf profile "$@" --with "${TOOLS:-nsys,ncu,torch}" "${results[@]}" 2>&1 | tee "$folder/profile.log"
fi
if wanted cheaters; then
  python3 -m tests.cheaters --gpus 1 --details --seeds "${SEEDS:-1}" --json "$folder/cheaters.json" 2>&1 |
    tee "$folder/cheaters.log"
  python3 -m aiperf run tests/misbehave/out-of-device-memory.yaml --precision quick --no-peaks "${results[@]}" 2>&1 |
    tee -a "$folder/cheaters.log"
fi
[ "$tests" -eq 0 ] || exit 1
exit "$ran"
