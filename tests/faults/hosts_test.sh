#!/usr/bin/env bash
# Runs on two hosts, simulated by two network namespaces of this machine with a virtual cable
# between them: trains, throttles the cable, cuts it, and kills a rank on the other host.
#   tests/faults/hosts_test.sh PROGRAM
# Without permission to create namespaces it prints a message and exits with 77, which CTest shows
# as skipped.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 1 "$@"

skip() {
  echo "skipped: $1"
  exit 77
}
if [[ -z ${IN_NAMESPACE:-} ]]; then
  for tool in ip tc nsenter unshare mpirun; do
    command -v "$tool" >/dev/null || skip "there is no '$tool' here"
  done
  # Everything created here, including processes, disappears with the first process of these
  # namespaces.
  namespaces=(unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private)
  "${namespaces[@]}" ip link add cable type veth peer name end 2>/dev/null || skip "no permission to create network namespaces; run it as root"
  IN_NAMESPACE=1 exec "${namespaces[@]}" "$0" "$@"
fi

program=$1
timeout=3 # watchdog.timeout_seconds
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
mount -t tmpfs tmpfs /dev/shm
printf '%s\n' "127.0.0.1 localhost" "10.99.0.1 host-a" "10.99.0.2 host-b" >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 TMPDIR=$work

declare -A host # the process that keeps the host's namespaces alive
for name in host-a host-b; do
  unshare --net --uts bash -c "hostname $name; echo up >$work/$name; exec sleep infinity" &
  host[$name]=$!
  until [[ -s $work/$name ]]; do sleep 0.01; done
done
on() { # on HOST COMMAND...
  local name=$1
  shift
  nsenter --target "${host[$name]}" --net --uts -- "$@"
}
on_both() { # on_both COMMAND...
  on host-a "$@"
  on host-b "$@"
}
ip link add cable netns "${host[host-a]}" type veth peer name cable netns "${host[host-b]}"
on host-a ip address add 10.99.0.1/24 dev cable
on host-b ip address add 10.99.0.2/24 dev cable
on_both ip link set lo up
on_both ip link set cable up
# Replaces ssh for mpirun.
cat >"$work/remote_shell" <<EOF
#!/bin/sh
shift
exec nsenter --target ${host[host-b]} --net --uts -- sh -c "\$*"
EOF
chmod +x "$work/remote_shell"

cat >"$work/run.txtpb" <<EOF
model { zoo { name: "mlp" hidden: [512, 512] } }
data { synthetic { shape: [1, 8, 8] count: 1024 eval_count: 32 } }
batch { global: 32 }
train { max_steps: 1000000 eval_every_epochs: 0 }
optimizer { sgd {} }
schedule { learning_rate: 0.001 }
checkpoint { every_epochs: 0 }
watchdog { timeout_seconds: $timeout first_timeout_seconds: 20 }
EOF

# start NAME RANKS_PER_HOST [ARGUMENT...]: in the background, as $launcher; its output is in
# NAME.out, its run in NAME.
start() {
  local name=$1 ranks=$2
  shift 2
  on host-a mpirun --quiet --bind-to none --oversubscribe --host "host-a:$ranks,host-b:$ranks" -np $((2 * ranks)) \
    --mca plm_rsh_agent "$work/remote_shell" --mca oob_tcp_if_include cable --mca btl_tcp_if_include cable \
    "$program" train "$work/run.txtpb" --run-dir "$work/$name" "$@" >"$work/$name.out" 2>&1 &
  launcher=$!
}
finish() { # the launcher's exit code, when it has ended, as $status
  status=0
  wait "$launcher" || status=$?
}
has_steps() { # has_steps NAME COUNT
  [[ -f $work/$1/metrics.jsonl ]] && (($(grep -c '"event":"step"' "$work/$1/metrics.jsonl") >= $2))
}
losses() { grep -o '"train_loss":[^,}]*' "$work/$1/metrics.jsonl"; }
wait_for() { # wait_for SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}
# Prints "PID NAME" of ranks, launchers and daemons that are running, without zombies.
daemons='|orted'
left() {
  local status name state
  for status in /proc/[0-9]*/status; do
    { read -r _ name && read -r _ _ && read -r _ state _; } 2>/dev/null <"$status" || continue
    [[ $name =~ ^(trireme|mpirun$daemons) && $state != [ZX] ]] && echo "$(basename "$(dirname "$status")") $name"
  done || true
}
none_left() { [[ -z $(left) ]]; }
pid_of_rank() {
  local environment
  for environment in /proc/[0-9]*/environ; do
    if grep -zqx "OMPI_COMM_WORLD_RANK=$1" "$environment" 2>/dev/null; then
      basename "$(dirname "$environment")"
      return
    fi
  done
}

failures=0
expect() { # expect WHAT COMMAND...: the command succeeds
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    echo "FAILED: $what"
    failures=$((failures + 1))
  fi
}
expect_end() { # expect_end NAME SECONDS: within them, the run has failed and all its processes have ended
  local begin=$SECONDS
  expect "$1: all processes have ended within $2 s" wait_for "$2" none_left
  echo "    after $((SECONDS - begin)) s; left: $(left | tr '\n' ' ')"
  left | while read -r process _; do kill -KILL "$process" 2>/dev/null || true; done
  finish
  expect "$1: the launcher has failed, with $status" test "$status" -ne 0
  expect "$1: nothing stays in shared memory" test -z "$(find /dev/shm -name '*trireme*')"
}
expect_text() { # expect_text NAME PATTERN FILE
  expect "$1: $(basename "$3") says '$2'" grep -qE -e "$2" "$3"
}

for ranks in 1 2; do
  start "train-$ranks" $ranks --set train.max_steps=30
  finish
  expect "2 hosts of $ranks ranks train" test "$status" -eq 0
  expect "2 hosts of $ranks ranks: 30 steps" has_steps "train-$ranks" 30
done

start plain 1 --set train.max_steps=8
finish
expect "unthrottled: trains" test "$status" -eq 0
on_both tc qdisc add dev cable root tbf rate 20mbit burst 32k latency 200ms
begin=$SECONDS
start throttled 1 --set train.max_steps=8
finish
expect "throttled: trains" test "$status" -eq 0
# 8 steps of 1.2 MB each way.
expect "throttled: slower, in $((SECONDS - begin)) s" test $((SECONDS - begin)) -ge 3
expect "throttled: the same losses" test "$(losses throttled)" = "$(losses plain)"
expect "throttled: no diagnosis" test -z "$(grep '^trireme: ' "$work/throttled.out")"
on_both tc qdisc del dev cable root

start killed 2
expect "killed: it runs" wait_for 20 has_steps killed 20
pid=$(pid_of_rank 3)
kill -KILL "$pid"
# By the end of its process, not by a timeout.
expect "killed: the diagnosis names it at once" wait_for $timeout grep -q "trireme: rank 3 (host host-b, pid $pid) died" "$work/killed.out"
expect_end killed $((timeout + 5))

start cut 2
expect "cut: it runs" wait_for 20 has_steps cut 20
on_both ip link set cable down
# mpirun sometimes crashes in its second abort; nothing then ends its daemon on the other host.
daemons=
expect_end cut $((timeout + 10))
expect_text cut '^trireme: host host-b .*is unreachable: no message from it' "$work/cut.out"
expect_text cut '^host host-a .*is unreachable' "$work/cut/log/rank-2.log"

# The replicas of each of two stages are on one host, since activations have fewer bytes than gradients.
on_both ip link set cable up
start cut-stages 2 --set parallel.stages=2
expect "cut-stages: it runs" wait_for 20 has_steps cut-stages 20
expect_text cut-stages 'neighbors: REPLICAS' "$work/cut-stages/config.txtpb"
on_both ip link set cable down
expect_end cut-stages $((timeout + 10))
expect_text cut-stages '^trireme: host host-b .*is unreachable: .*; rank 2 \(stage 1, replica 0, host host-b' "$work/cut-stages.out"
expect_text cut-stages '^host host-a .*is unreachable: .*; rank 0 \(stage 0, replica 0, host host-a' "$work/cut-stages/log/rank-2.log"

if ((failures > 0)); then
  tail -n 20 "$work"/*.out
  exit 1
fi
