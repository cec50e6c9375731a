# Functions that the scripts share: help, argument checks, building, and mpirun on this machine.
# Every script prints its head comment for --help, and exits with 2 for unknown arguments before it
# does anything else.
# shellcheck shell=bash
root=$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# usage: prints the head comment of the calling script.
usage() { sed -n -e '/^# shellcheck /d' -e '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# misuse MESSAGE...: prints the message and exits with 2.
misuse() {
  echo "$(realpath --relative-to="$root" "$0"): $*; see --help" >&2
  exit 2
}

# arguments COUNT "$@": checks the arguments of a script that takes COUNT of them and no options.
arguments() {
  local count=$1 argument
  shift
  for argument; do
    case $argument in
      -h | --help) usage; exit 0 ;;
      -*) misuse "unknown option $argument" ;;
    esac
  done
  (($# <= count)) || misuse "unknown argument ${*:count+1:1}"
  (($# == count)) || misuse "expected $count arguments, got $#"
}

# writable PATH...: exits with 1 unless files can be written to these folders, or they can be created.
writable() {
  local path
  for path; do
    path=$(realpath -m "$path")
    while [[ ! -e $path ]]; do path=$(dirname "$path"); done
    [[ -d $path && -w $path && -x $path ]] && continue
    echo "$(realpath --relative-to="$root" "$0"): cannot write to $path; run it as a user who can" >&2
    exit 1
  done
}

# Open MPI refuses to run as root without these variables. Containers often have no other user.
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# mpirun_here RANKS COMMAND...: runs ranks on this machine only, without binding them to cores.
mpirun_here() {
  local ranks=$1
  shift
  mpirun --quiet -np "$ranks" --oversubscribe --bind-to none "$@"
}

# report_progress LOG: prints the last line of the file once a minute, until it is ended or the
# calling script is gone.
report_progress() {
  local nap=""
  trap 'kill $nap; exit' TERM
  while kill -0 "$$"; do
    sleep 60 >/dev/null &
    nap=$!
    wait "$nap"
    tail -n 1 "$1"
  done 2>/dev/null
}

# quietly COMMAND...: shows the command's output only if it fails, and meanwhile its last line once
# a minute. A signal that ends the script ends the command, too.
quietly() {
  local log command reporter status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 &
  command=$!
  report_progress "$log" &
  reporter=$!
  # shellcheck disable=SC2064  # the values of now
  trap "kill $command $reporter 2>/dev/null; wait $command; rm -f '$log'; exit 130" INT TERM HUP
  wait "$command" || status=$?
  trap - INT TERM HUP
  kill "$reporter" 2>/dev/null || true
  wait "$reporter" 2>/dev/null || true
  if ((status != 0)); then
    cat "$log" >&2
    echo "$(realpath --relative-to="$root" "$0"): failed with exit code $status: $*" >&2
    [[ -s $log ]] || echo "It has printed nothing; is there space in $(dirname "$log")?" >&2
  fi
  rm -f "$log"
  return "$status"
}

# build PRESET [TARGETS...]: configures and builds the targets. On a terminal, ninja shows its
# one-line progress.
build() {
  local preset=$1 folder=$root/build/$1
  shift
  writable "$folder"
  # The default g++ of Ubuntu 22.04 is version 11, which is too old.
  if [[ -z ${CXX:-} ]] && command -v g++-12 >/dev/null && [[ $(g++ -dumpversion) =~ ^([0-9]|1[01])(\.|$) ]]; then
    export CXX=g++-12
  fi
  # CMake refuses a build folder that was moved or copied with the repository.
  local configured
  configured=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [[ -n $configured && $(realpath -m "$configured") != "$root" ]]; then
    echo "$folder was configured for $configured; it is configured anew, with default options"
    rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
  fi
  quietly env -C "$root" cmake --preset "$preset" # every time, since more packages may be installed now
  if [[ -t 1 ]]; then
    ninja -C "$folder" "$@"
  else
    quietly ninja -C "$folder" "$@"
  fi
}
