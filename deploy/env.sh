# Source this file (bash, sh, zsh), from any folder, to add trireme and mpirun to PATH.
# shellcheck shell=sh
# shellcheck disable=SC3028,SC3054  # only bash reads them
if [ -n "${BASH_SOURCE:-}" ]; then
  trireme_file=$BASH_SOURCE
elif [ -n "${ZSH_VERSION:-}" ]; then
  eval 'trireme_file=${(%):-%x}'
else # other shells have no such variable, but keep the file open
  trireme_file=./env.sh
  read -r trireme_pid trireme_open </proc/self/stat # in a subshell, $$ is another process
  for trireme_open in "/proc/$trireme_pid/fd/"*; do
    trireme_open=$(readlink "$trireme_open" || true)
    case $trireme_open in */env.sh) trireme_file=$trireme_open ;; esac
  done
fi
TRIREME_BUNDLE=$(CDPATH="" cd -- "$(dirname "$trireme_file")" >/dev/null && pwd)
case ${0##*/}${ZSH_VERSION:-} in # zsh sets $0 for sourced files, too
  env.sh) echo "env.sh: source this file instead of running it: . ./env.sh" >&2 ;;
esac
case $TRIREME_BUNDLE in
  *[:\;]*) # which separate folders in PATH and in Open MPI's settings
    echo "env.sh: PATH cannot contain $TRIREME_BUNDLE; unpack the bundle in a folder without : and ;" >&2
    TRIREME_BUNDLE=""
    ;;
esac
if [ -x "$TRIREME_BUNDLE/bin/trireme" ]; then
  export TRIREME_BUNDLE
  # Moves this bundle to the front of PATH, before other bundles.
  trireme_path=:$PATH:
  while :; do
    case $trireme_path in
      *":$TRIREME_BUNDLE/bin:"*)
        trireme_path=${trireme_path%%":$TRIREME_BUNDLE/bin:"*}:${trireme_path#*":$TRIREME_BUNDLE/bin:"}
        ;;
      *) break ;;
    esac
  done
  trireme_path=${trireme_path#:}
  export PATH="$TRIREME_BUNDLE/bin:${trireme_path%:}"
  # Open MPI, PMIx and hwloc look for their plugins and settings here instead of in their original
  # folders.
  export OPAL_PREFIX="$TRIREME_BUNDLE" OPAL_SYSCONFDIR="$TRIREME_BUNDLE/etc/openmpi"
  export PMIX_PREFIX="$TRIREME_BUNDLE" PMIX_LIBDIR="$TRIREME_BUNDLE/lib" PMIX_DATADIR="$TRIREME_BUNDLE/share"
  export HWLOC_PLUGINS_PATH="$TRIREME_BUNDLE/lib/hwloc"
  # The daemon that mpirun starts on other hosts, where this file has not been sourced.
  export OMPI_MCA_orte_launch_agent="$TRIREME_BUNDLE/bin/orted"
  # Without ssh, Open MPI would not even start ranks on this machine.
  command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-^rsh}"
  # Open MPI refuses to run as root without these variables. Containers often have no other user.
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
elif [ -n "$TRIREME_BUNDLE" ]; then
  echo "env.sh: cannot find its own folder; cd to that folder and source it there: . ./env.sh" >&2
  TRIREME_BUNDLE=""
fi
unset trireme_file trireme_pid trireme_open trireme_path
[ -n "$TRIREME_BUNDLE" ]
