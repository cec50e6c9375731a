# Sourced by the scripts: where things are, their help, how to build and to call mpirun here.
# Every script prints the comment at its head for --help and refuses what it does not know with 2, before it does anything.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# usage: prints the comment at the head of the script that was called.
usage() { sed -n -e '/^# shellcheck /d' -e '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# misuse MESSAGE...: ends the script that was called with 2.
misuse() {
  echo "$(realpath --relative-to="$root" "$0"): $*; see --help" >&2
  exit 2
}

# arguments COUNT "$@": for scripts that take so many, and no options.
arguments() {
  local count=$1 argument
  shift
  for argument; do
    case $argument in
      -h | --help) usage && exit 0 ;;
      -*) misuse "unknown option $argument" ;;
    esac
  done
  (($# <= count)) || misuse "unknown argument ${*:count+1:1}"
  (($# == count)) || misuse "$count arguments are needed"
}

# Open MPI refuses root without these; containers often have no other user.
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# mpirun for ranks of this machine alone: no core of its own for each, no network to look for.
mpirun_here() {
  local ranks=$1
  shift
  mpirun --quiet -np "$ranks" --oversubscribe --bind-to none "$@"
}

# quietly COMMAND...: its output is shown only when it fails; of what takes longer, the last line each minute.
quietly() {
  local log teller status=0
  log=$(mktemp)
  (while sleep 60 >/dev/null 2>&1; do tail -n 1 "$log"; done) &
  teller=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  ((status == 0)) || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

# build PRESET [TARGETS...]: configures and builds what is out of date; ninja's one-line progress on a terminal.
build() {
  local preset=$1 folder=$root/build/$1
  shift
  # Ubuntu 22.04's g++ is 11.
  if [[ -z ${CXX:-} ]] && command -v g++-12 >/dev/null && [[ $(g++ -dumpversion) =~ ^([0-9]|1[01])(\.|$) ]]; then
    export CXX=g++-12
  fi
  (cd "$root" && quietly cmake --preset "$preset") # each time: more may be installed than before
  if [[ -t 1 ]]; then
    ninja -C "$folder" "$@"
  else
    quietly ninja -C "$folder" "$@"
  fi
}
