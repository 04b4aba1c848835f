#!/usr/bin/env bash
# Measures a suite on all GPUs of this machine at once, each with a shard of it and an equal share of the CPUs:
#   tests/gpu/suite_on_gpus.sh FOLDER SUITE [SECONDS]
# The shards run in sessions of their own, so that nothing ends them with this script. It waits for them, SECONDS at
# most, and packs what is there into FOLDER/runs.tgz; the same command again goes on waiting, and takes a shard up again
# that was killed or interrupted. Read from the environment:
# BUDGET (of each shard, e.g. 22min), GPUS (how many shards, where it is not one for each GPU), PYTHON.
# Exit: 75 while a shard is not done, else that of the first shard that failed, else 0.
set -uo pipefail
folder=$(realpath -m "${1:?usage: tests/gpu/suite_on_gpus.sh FOLDER SUITE [SECONDS]}")
suite=${2:?which suite}
until=$((SECONDS + ${3:-86400}))
python=${PYTHON:-python3}
mkdir -p "$folder"
# A line for each shard: its GPU, and its share of the CPUs that this script may use.
plan=$("$python" - "${GPUS:-}" << 'END'
import os, sys
import torch
named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
gpus = named or [str(index) for index in range(max(1, torch.cuda.device_count()))]
if sys.argv[1]:
    gpus = [gpus[index % len(gpus)] for index in range(int(sys.argv[1]))]
cpus = sorted(os.sched_getaffinity(0))
each = len(cpus) // len(gpus)
if not each:
    sys.exit(f"{len(gpus)} shards want a CPU each, and there are {len(cpus)}")
for index, gpu in enumerate(gpus):
    print(gpu, ",".join(map(str, cpus[index * each : (index + 1) * each])))
END
) || exit 2
shards=$(wc -l <<< "$plan")

begin() {  # SHARD GPU CPUS
  export CUDA_VISIBLE_DEVICES=$2 TMPDIR=$folder/tmp$1 AIPERF_STATE=$folder/state$1
  mkdir -p "$TMPDIR" "$AIPERF_STATE"
  echo $BASHPID > "$folder/shard$1.pid"
  local resume=()
  [ -e "$folder/shard$1/latest" ] && resume=(--resume latest)
  taskset -c "$3" "$python" -m aiperf run --suite "$suite" --shard "$1/$shards" \
    ${BUDGET:+--budget "$BUDGET"} "${resume[@]}" -q --results "$folder/shard$1"
  echo $? > "$folder/shard$1.exit"
}

lives() {  # SHARD; what was killed and not yet collected has no command line
  local pid
  pid=$(cat "$folder/shard$1.pid" 2> /dev/null) && [ -n "$(tr -d '\0' 2> /dev/null < "/proc/$pid/cmdline")" ]
}

ended() {  # SHARD; from 128 on a signal ended it, an interrupt among them
  [ -s "$folder/shard$1.exit" ] && [ "$(cat "$folder/shard$1.exit")" -lt 128 ]
}

for shard in $(seq "$shards"); do
  { ended "$shard" || lives "$shard"; } && continue
  rm -f "$folder/shard$shard.exit"
  export -f begin
  export folder suite shards python
  setsid bash -c "begin $shard $(sed -n "${shard}p" <<< "$plan")" >> "$folder/shard$shard.log" 2>&1 < /dev/null &
  sleep 2  # so that no two runs get one name
done
measuring() { for shard in $(seq "$shards"); do lives "$shard" && return; done; false; }
while measuring && [ $SECONDS -lt $until ]; do sleep 1; done
# 1: a file changed while it was read, as those of a shard that goes on do.
(cd "$folder" && { tar -czf runs.tgz.part shard*/ shard*.* || [ $? -eq 1 ]; } 2> /dev/null && mv runs.tgz.part runs.tgz)
code=0 done=0
for shard in $(seq "$shards"); do
  echo "shard $shard: $(ls "$folder/shard$shard"/latest/cases 2> /dev/null | wc -l) cases" \
    "exit $(cat "$folder/shard$shard.exit" 2> /dev/null || echo -)"
  tail -n 4 "$folder/shard$shard.log"
  ended "$shard" && done=$((done + 1))
  [ $code -ne 0 ] || code=$(cat "$folder/shard$shard.exit" 2> /dev/null || echo 0)
done
[ $done -eq "$shards" ] || exit 75
exit "$code"
