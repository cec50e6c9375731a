#!/usr/bin/env bash
# Tests launch/supervise on runs that fail: it restarts them while they make progress, exits with 76
# when they do not, and forwards signals.
#   tests/faults/supervise_test.sh BUILD_TREE
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 1 "$@"
here=$(cd "$(dirname "$0")" && pwd)
supervise=$here/../../launch/supervise
tree=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

cp "$here/short.txtpb" "$work/run.txtpb"

failures=0
expect() { # expect WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    printf 'FAILED: %s\n' "$what"
    cat "$work/output"
    failures=$((failures + 1))
  fi
}

# job RUN: sets `command` to that of a job with the faults of TRIREME_INJECT.
job() {
  command=(mpirun --quiet -np 2 --oversubscribe --bind-to none "$tree/tests/trireme-faulty" train "$work/run.txtpb"
    --run-dir "$work/$1")
}
# supervised RUN OPTIONS...: leaves the exit code in `code`.
supervised() {
  job "$1"
  code=0
  "$supervise" --wait 0 "${@:2}" -- "${command[@]}" >"$work/output" 2>&1 || code=$?
}
wait_for() { # wait_for FILE
  local i
  for ((i = 0; i < 300; ++i)); do
    [[ ! -e $1 ]] || return 0
    sleep 0.1
  done
  return 1
}
attempts() { find "$work/$1/log" -name 'attempt-*.log' | wc -l; }
# Prints the loss and the checksum of every step, by which runs are compared.
records() { sed -nE 's/.*"event":"step","step":([0-9]+),.*("train_loss":[^,]*).*("parameter_checksum":"[^"]*").*/\1 \2 \3/p' "$1/metrics.jsonl" | sort -n; }
same_records() { [[ -n $(records "$1") ]] && diff <(records "$1") <(records "$2"); }

# supervise must treat files in a run's folder as data: execute nothing in them or in their names,
# and accept any number.
# shellcheck disable=SC2016  # must not be expanded
bad_states=('0 command[$(touch ran)0]' 'command[$(touch ran)0] 0' '0 -1 starts' '08 -1' '99999999999999999999 1' ''
  $'0 -1\n1 1')
cd "$work"
mkdir -p outside/log outside/checkpoints
# shellcheck disable=SC2016
touch 'outside/log/attempt-a[$(touch ran)].log'
# shellcheck disable=SC2016
echo 'step-9[$(touch ran)]' >outside/checkpoints/latest
for state in "${bad_states[@]}"; do
  echo "$state" >outside/log/supervise.state
  code=0
  "$supervise" -- true --run-dir outside >"$work/output" 2>&1 || code=$?
  expect "a state of '$state' is refused and the run begins" [ "$code:$(find . -name ran)" = 0: ]
  expect "... with a message" grep -q "supervise.state is damaged" "$work/output"
done
echo '2 -1' >outside/log/supervise.state
"$supervise" -- true --run-dir outside >"$work/output" 2>&1
expect "a state written by supervise is accepted" [ ! -s "$work/output" ]
rm outside/checkpoints/latest
mkfifo outside/checkpoints/latest
code=0
timeout 20 "$supervise" -- true --run-dir outside >"$work/output" 2>&1 || code=$?
expect "a pipe in place of latest is not waited for" [ "$code" = 0 ]
for link in supervise.lock supervise.state.new; do
  rm -f "outside/log/$link"
  ln -s "$work/run.txtpb" "outside/log/$link"
  code=0
  "$supervise" -- true --run-dir outside >"$work/output" 2>&1 || code=$?
  expect "a link in place of $link is refused" [ "$code" = 1 ]
  expect "... with a message" grep -q "outside/log/$link is a symbolic link" "$work/output"
  expect "... and its target is kept" cmp -s "$work/run.txtpb" "$here/short.txtpb"
  rm "outside/log/$link"
  mkfifo "outside/log/$link"
  code=0
  timeout 20 "$supervise" -- true --run-dir outside >"$work/output" 2>&1 || code=$?
  expect "a pipe in place of $link is refused" [ "$code" = 1 ]
  expect "... with a message" grep -q "outside/log/$link is not a regular file" "$work/output"
  rm "outside/log/$link"
done
rm outside/checkpoints/latest
code=0
"$supervise" --logs "-l x" -- true --run-dir "-n x" >"$work/output" 2>&1 || code=$?
expect "names that look like options are names" [ "$code" = 0 -a -d "./-n x/log" -a -d "./-l x" ]
for wrong in "--restarts 0" "--restarts 99999999999" "--wait 08" "--wait a[0]" "--grace 08s" "--grace 1d" "--restarts"; do
  code=0
  # shellcheck disable=SC2086  # option and value
  "$supervise" $wrong -- true --run-dir outside >"$work/output" 2>&1 || code=$?
  expect "$wrong is bad usage" [ "$code" = 2 ]
done

# The start of a run that a signal stops before it has saved anything is no progress.
for code_of_start in 75 1; do
  for start in 1 2 3; do
    code=0
    "$supervise" --restarts 2 --wait 0 -- sh -c "trap '' USR1; kill -USR1 \$PPID; sleep 1; exit $code_of_start" x \
      --run-dir "unsaved-$code_of_start" >"$work/output" 2>&1 || code=$?
    codes[start]=$code
  done
  expect "two stops with $code_of_start and without progress end with 75, a third start with 76" \
    [ "${codes[*]}" = "75 75 76" ]
done

# A lost terminal (SIGHUP) is like SIGTERM; only SIGUSR1 requeues, and of an array only the own task.
mkdir bin
printf '#!/bin/sh\necho "$@" >>%q\n' "$work/scontrol" >bin/scontrol
chmod +x bin/scontrol
for signal in HUP USR1; do
  waits="trap 'touch $work/saved-$signal; exit 75' USR1; touch $work/ready-$signal; while :; do sleep 0.1; done"
  PATH=$work/bin:$PATH SLURM_JOB_ID=4711 SLURM_ARRAY_JOB_ID=4711 SLURM_ARRAY_TASK_ID=7 \
    "$supervise" --requeue -- sh -c "$waits" x --run-dir "by-$signal" >"$work/output" 2>&1 &
  pid=$!
  wait_for "$work/ready-$signal"
  kill "-$signal" "$pid"
  code=0
  wait "$pid" || code=$?
  expect "SIG$signal ends it with 75" [ "$code" = 75 ]
  expect "... and reaches the command" [ -e "$work/saved-$signal" ]
done
expect "SIGUSR1 requeues the task of an array" [ "$(cat "$work/scontrol")" = "requeue 4711_7" ]

# Open MPI's shared memory of killed ranks is removed, but not that of earlier or other runs.
segment=/dev/shm/vader_segment.test.$$
trap 'rm -rf "$work" "$segment".*' EXIT
touch "$segment.old"
python3 -c "
import mmap, time
file = open('$segment.used', 'w+b')
file.truncate(4096)
memory = mmap.mmap(file.fileno(), 4096)
open('$work/mapped', 'w')
time.sleep(60)" &
user=$!
wait_for "$work/mapped"
code=0
"$supervise" --restarts 1 -- sh -c "touch $segment.left $segment.used; ln -s $work/run.txtpb $segment.link; exit 1" x \
  --run-dir shared >"$work/output" 2>&1 || code=$?
expect "a failing command ends it" [ "$code" = 76 ]
expect "shared memory that nobody uses is removed" [ ! -e "$segment.left" ]
expect "shared memory of other processes, earlier runs and links are kept" \
  [ -e "$segment.old" -a -e "$segment.used" -a -L "$segment.link" ]
kill "$user"

# A rank that the kernel kills because memory has run out prints nothing.
group=/sys/fs/cgroup/memory/trireme-test-$$
limit=memory.limit_in_bytes
[[ -d ${group%/*} ]] || group=/sys/fs/cgroup/trireme-test-$$ limit=memory.max
if mkdir "$group" 2>/dev/null && echo 50000000 >"$group/$limit"; then
  "$supervise" --restarts 1 -- sh -c "echo \$\$ >$group/cgroup.procs; exec python3 -c 'bytearray(1 << 30)'" x \
    --run-dir memory >"$work/output" 2>&1 || true
  rmdir "$group"
  expect "running out of memory is reported" \
    grep -q "exited with 137 at step 0, .*; memory ran out: the kernel killed 1 process" "$work/output"
  expect "... in the log too" grep -q "^# .*, exit code 137, .*; memory ran out" memory/log/attempt-001.log
else
  rmdir "$group" 2>/dev/null || true
  echo "skipped: running out of memory (takes a memory cgroup)"
fi

job straight
"${command[@]}" >"$work/output" 2>&1

export TRIREME_INJECT="step exit step=2 rank=1"
supervised loop --restarts 2
expect "a crash loop ends with 76" [ "$code" = 76 ]
expect "after the maximum number of starts without progress" [ "$(attempts loop)" = 2 ]
expect "it prints the step at which it gave up" grep -q "gave up: 2 consecutive starts at step 0" "$work/output"
expect "the output of each attempt is saved" grep -q "^# .*, exit code 7, at step 0" "$work/loop/log/attempt-002.log"

# Slow enough for the disk to take every checkpoint.
export TRIREME_INJECT="step sleep times=0 seconds=0.03; step exit step=32 rank=1 once=$work/one;
  step kill step=70 rank=0 once=$work/two; step sleep seconds=1 step=90 once=$work/three"
job progress
"$supervise" --wait 0 --restarts 1 -- "${command[@]}" >"$work/output" 2>&1 &
pid=$!
expect "with progress it continues" wait_for "$work/three"
expect "a second instance is refused" grep -q "in use" <("$supervise" -- "${command[@]}" 2>&1)
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
expect "SIGTERM ends it with 75" [ "$code" = 75 ]
expect "and saves" grep -q "stopped by SIGTERM at step 9[12];" "$work/output"
supervised progress
expect "after a restart it ends with 0" [ "$code" = 0 ]
expect "after four attempts" [ "$(attempts progress)" = 4 ]
expect "with the records of an uninterrupted run" same_records "$work/progress" "$work/straight"

# Like a batch job that is requeued: starts without progress are counted across its starts.
export TRIREME_INJECT="step exit step=2 rank=1"
job requeued
"$supervise" --wait 30 --restarts 2 -- "${command[@]}" >"$work/output" 2>&1 &
pid=$!
expect "it waits before it starts again" wait_for "$work/requeued/log/supervise.state"
for ((i = 0; i < 100; ++i)); do
  ! grep -q "restarting from" "$work/output" || break
  sleep 0.1
done
kill -USR1 "$pid"
code=0
wait "$pid" || code=$?
expect "a signal ends the wait with 75" [ "$code" = 75 ]
supervised requeued --restarts 2
expect "starts are counted over requeues" [ "$code:$(attempts requeued)" = 76:2 ]

unset TRIREME_INJECT
sed -i 's/epochs: 0 }/epochs: 0 } nonsense/' "$work/run.txtpb"
supervised bad
expect "a bad configuration ends it at once with 2" [ "$code:$(attempts bad)" = 2:1 ]
code=0
"$supervise" -- true >"$work/output" 2>&1 || code=$?
expect "a missing --run-dir is reported" grep -q "needs --run-dir" "$work/output"
expect "... and ends with 2" [ "$code" = 2 ]

((failures == 0))
