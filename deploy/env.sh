# Source this file (bash, sh, zsh), from anywhere: trireme and mpirun are then in PATH.
# shellcheck shell=sh
# shellcheck disable=SC3028,SC3054  # only bash comes to where they are read
if [ -n "${BASH_SOURCE:-}" ]; then
  trireme_file=$BASH_SOURCE
elif [ -n "${ZSH_VERSION:-}" ]; then
  eval 'trireme_file=${(%):-%x}'
else # other shells do not tell, but hold the file open
  trireme_file=./env.sh
  for trireme_open in "/proc/$$/fd/"*; do
    trireme_open=$(readlink "$trireme_open" || true)
    case $trireme_open in */env.sh) trireme_file=$trireme_open ;; esac
  done
fi
TRIREME_BUNDLE=$(CDPATH="" cd -- "$(dirname "$trireme_file")" >/dev/null && pwd)
if [ -x "$TRIREME_BUNDLE/bin/trireme" ]; then
  export TRIREME_BUNDLE
  # In front, where another bundle may have been.
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
  # Where Open MPI, PMIx and hwloc look for their parts instead of where they were installed.
  export OPAL_PREFIX="$TRIREME_BUNDLE" OPAL_SYSCONFDIR="$TRIREME_BUNDLE/etc/openmpi"
  export PMIX_PREFIX="$TRIREME_BUNDLE" PMIX_LIBDIR="$TRIREME_BUNDLE/lib" PMIX_DATADIR="$TRIREME_BUNDLE/share"
  export HWLOC_PLUGINS_PATH="$TRIREME_BUNDLE/lib/hwloc"
  # What mpirun starts on other hosts, where nobody has sourced this.
  export OMPI_MCA_orte_launch_agent="$TRIREME_BUNDLE/bin/orted"
  # Without ssh Open MPI would not start at all, not even ranks of this machine.
  command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-^rsh}"
  # Containers often have no other user than root, whom Open MPI refuses without these.
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
else
  echo "env.sh: cannot tell where it lies; cd to its folder and source it there: . ./env.sh" >&2
  unset TRIREME_BUNDLE
fi
unset trireme_file trireme_open trireme_path
