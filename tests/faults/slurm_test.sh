#!/usr/bin/env bash
# Tests the batch scripts of deploy/slurm with a real Slurm on two simulated hosts: srun and mpirun
# train to the same losses; after a signal a job saves, is requeued and finishes; without progress
# it fails and is not requeued. --all also tests the time limit of a job, `scontrol requeue` and the
# loss of a node, which takes some minutes.
#   tests/faults/slurm_test.sh BUILD_TREE [--all]
# Needs root and Slurm's packages (slurmctld, slurmd, munge); without them it prints a message and
# exits with 77.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
all=""
if [[ ${2-} == --all ]]; then
  all=--all
  set -- "$1"
fi
arguments 1 "$@"
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/faults/slurm_cluster.sh
. "$here/slurm_cluster.sh"
[[ -n ${IN_NAMESPACES:-} ]] || enter_namespaces "$0" "$@" ${all:+"$all"}

tree=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The folder from which a user calls sbatch, with trireme-faulty as the program.
home=$work/home
mkdir -p "$home/build/release/bin"
ln -s "$here"/../../{deploy,launch} "$home/"
ln -s "$tree/tests/trireme-faulty" "$home/build/release/bin/trireme"
cp "$here/short.txtpb" "$home/run.txtpb"

failures=0
expect() { # expect WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then
    echo "ok: $SECONDS s: $what"
  else
    printf 'FAILED: %s\n' "$what"
    on n0 scontrol show job "$job" || true
    tail -n 60 "$home"/*-"$job".log
    failures=$((failures + 1))
  fi
}

# submit NAME LAUNCHER FAULTS [SBATCH OPTIONS...]: two ranks on each of two nodes; sets `job`.
submit() {
  job=$(cd "$home" && TRIREME_INJECT=$3 LAUNCHER=$2 on n0 sbatch --parsable --job-name="$1" --nodes=2 \
    --ntasks-per-node=2 --cpus-per-task=1 --time=10 "${@:4}" deploy/slurm/many-nodes.sbatch run.txtpb --run-dir "runs/$1")
}
field() { on n0 scontrol show job "$job" | sed -nE "s/.*\b$1=([^ ]+).*/\1/p"; } # field JobState
succeeds_within() { # succeeds_within SECONDS COMMAND...: repeats the command until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
state_is() { [[ $(field JobState) == "$1" ]]; }
restarted() { (($(field Restarts) > 0)); }
ends_as() { succeeds_within "$2" state_is "$1"; } # ends_as COMPLETED SECONDS
steps_of() { sed -nE 's/.*"event":"step","step":([0-9]+),.*"train_loss":([^,]*).*/\1 \2/p' "$home/runs/$1/metrics.jsonl" | sort -n; }
at_step() { [[ $(cat "$home/runs/$1/checkpoints/latest" 2>/dev/null) > step-$(printf %08d "$2") ]]; }
# same_losses A B: both have 100 steps, with losses that are equal to six digits.
same_losses() {
  paste <(steps_of "$1") <(steps_of "$2") | awk '
    { difference = $2 - $4; if (difference < 0) difference = -difference }
    $1 != $3 || difference > 1e-6 * $4 { print "step " $1 ": " $2 " and " $4; bad = 1 }
    END { exit bad || NR != 100 }'
}
largest_difference() {
  paste <(steps_of "$1") <(steps_of "$2") | awk '
    { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > max) max = d } END { printf "largest difference of a loss: %g\n", max }'
}

hosts_up 2 "$work"
slurm_up 2 "$work/slurm"
slow="step sleep times=0 seconds=0.05"

submit by-srun srun ""
expect "srun trains on two nodes" ends_as COMPLETED 60
submit by-mpirun mpirun ""
expect "mpirun trains on two nodes" ends_as COMPLETED 60
expect "both to the same losses" same_losses by-srun by-mpirun
largest_difference by-srun by-mpirun

# Like --signal=B:USR1 shortly before the time limit.
for launcher in srun mpirun; do
  submit "signal-$launcher" $launcher "$slow"
  expect "a job by $launcher saves" succeeds_within 60 at_step "signal-$launcher" 20
  on n0 scancel --batch --signal=USR1 "$job" || true
  expect "is requeued after SIGUSR1" succeeds_within 60 restarted
  expect "and ends" ends_as COMPLETED 120
  expect "with the losses of an uninterrupted job" same_losses "signal-$launcher" by-srun
done

submit loop srun "step exit step=2 rank=1"
expect "a crash loop fails" ends_as FAILED 120
expect "with 76" [ "$(field ExitCode)" = 76:0 ]
expect "and is not requeued" [ "$(field Restarts)" = 0 ]

if [[ $all == --all ]]; then
  submit limit srun "step sleep times=0 seconds=0.6" --time=1 --signal=B:USR1@20
  expect "a job is requeued by the signal before its time limit" succeeds_within 120 restarted
  expect "until it has completed" ends_as COMPLETED 400
  expect "with the losses of an uninterrupted job" same_losses limit by-srun

  submit requeue srun "$slow"
  expect "a job saves" succeeds_within 60 at_step requeue 20
  on n0 scontrol requeue "$job"
  expect "is requeued by scontrol requeue" succeeds_within 60 restarted
  expect "and ends" ends_as COMPLETED 120
  expect "with the losses of an uninterrupted job" same_losses requeue by-srun

  submit node-loss srun "$slow"
  expect "a job saves" succeeds_within 60 at_step node-loss 20
  for pid in $(ip netns pids n1); do kill -KILL "$pid"; done
  expect "is requeued when a node is lost" succeeds_within 120 restarted
  on n1 slurmd
  expect "and ends when the node is back" ends_as COMPLETED 120
  expect "with the losses of an uninterrupted job" same_losses node-loss by-srun
fi
((failures == 0))
