# Sourced by tests: starts a Slurm cluster of several simulated hosts on this machine, in its own
# namespaces.
# shellcheck shell=bash

# enter_namespaces SCRIPT ARGUMENTS...: runs the script again as the first process of new
# namespaces, with $IN_NAMESPACES set. Its processes, networks and mounts are not visible outside,
# and disappear when it ends.
enter_namespaces() {
  local tool
  ((EUID == 0)) || skip "network namespaces need root"
  for tool in slurmctld slurmd munged ip unshare; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
  done
  unshare --mount --pid --fork --net true 2>/dev/null || skip "no permission to create namespaces"
  IN_NAMESPACES=1 exec unshare --mount --propagation private --pid --fork --mount-proc --kill-child --net "$@"
}

skip() {
  echo "skipped: $*"
  exit 77 # CTest shows it as skipped
}

# hosts_up N FOLDER: creates hosts n0, n1, ... on a network of their own. Programs run by `on HOST`
# see its hostname, and shared memory of their own.
hosts_up() {
  local i
  mount -t tmpfs tmpfs /run
  ip link set lo up
  ip link add switch type bridge
  ip link set switch up
  echo "127.0.0.1 localhost" >"$2/hosts"
  for ((i = 0; i < $1; ++i)); do
    echo "10.9.8.$((i + 1)) n$i" >>"$2/hosts"
    ip netns add "n$i"
    ip link add "port$i" type veth peer name eth0 netns "n$i"
    ip link set "port$i" master switch up
    ip -n "n$i" link set lo up
    ip -n "n$i" addr add "10.9.8.$((i + 1))/24" dev eth0
    ip -n "n$i" link set eth0 up
  done
  mount --bind "$2/hosts" /etc/hosts
}

on() { # on n0 COMMAND...
  local host=$1
  shift
  # shellcheck disable=SC2016  # for that shell to expand
  ip netns exec "$host" unshare --uts --mount sh -c 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"' "$host" "$@"
}

# slurm_up N FOLDER: starts Slurm with its controller on n0 and a node with two cores on each host.
slurm_up() {
  local i folder=$2
  mkdir -p "$folder"/{state,munge}
  chmod 700 "$folder/munge"
  head -c 1024 /dev/urandom >"$folder/munge/key"
  chmod 600 "$folder/munge/key"
  munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
  echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"
  cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=n0(10.9.8.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
TmpFS=$folder/tmp-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=5
KillWait=5
SlurmdParameters=config_overrides
NodeName=n[0-$(($1 - 1))] CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$folder/slurm.conf
  on n0 slurmctld -c
  for ((i = 0; i < $1; ++i)); do
    mkdir -p "$folder/spool-n$i" "$folder/tmp-n$i"
    on "n$i" slurmd
  done
  for ((i = 0; i < 100; ++i)); do
    [[ $(on n0 sinfo -h -N -o %T 2>/dev/null | grep -c idle) != "$1" ]] || return 0
    sleep 0.1
  done
  cat "$folder"/*.log
  return 1
}
