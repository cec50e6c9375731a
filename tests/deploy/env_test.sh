#!/usr/bin/env bash
# Checks the variables that env.sh and env.fish of a bundle set in a shell, from any folder and by
# any path.
#   tests/deploy/env_test.sh SHELL
# Exits with 77, which CTest shows as skipped, if SHELL is not installed.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 1 "$@"
shell=$1
command -v "$shell" >/dev/null || {
  echo "skipped: $shell is not installed; launch/setup --tests installs it"
  exit 77
}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
bundle="$work/a bundle"
mkdir -p "$bundle/bin" "$work/elsewhere"
printf '#!/bin/sh\necho the program\n' >"$bundle/bin/trireme"
chmod +x "$bundle/bin/trireme"
cp "$root"/deploy/env.{sh,fish} "$bundle/"

wanted="HWLOC_PLUGINS_PATH=$bundle/lib/hwloc
OMPI_MCA_orte_launch_agent=$bundle/bin/orted
OPAL_PREFIX=$bundle
OPAL_SYSCONFDIR=$bundle/etc/openmpi
PATH=$bundle/bin:$PATH
PMIX_DATADIR=$bundle/share
PMIX_LIBDIR=$bundle/lib
PMIX_PREFIX=$bundle
TRIREME_BUNDLE=$bundle"
case $shell in
  bash) start=(bash --noprofile --norc -eu) source=. file=env.sh ;;
  zsh) start=(zsh -f -eu) source=. file=env.sh ;;
  fish) start=(fish --no-config) source="source" file=env.fish ;;
  *) start=("$shell" -eu) source=. file=env.sh ;;
esac
export HOME=$work CDPATH=/ # if CDPATH is set, cd prints the folder
export LINES_OF_A_VARIABLE=$'1\nPATH=/2\nOPAL_PREFIX=/3'
failures=0
check() { # check WHAT FOLDER COMMANDS: checks that they set the variables and print nothing
  local output
  output=$(cd "$2" && "${start[@]}" -c "$3
    trireme >'$work/program'
    env -0 >'$work/env'" 2>&1) || output+=" (exited with $?)"
  if [[ -z $output && $(<"$work/program") == "the program" ]] && diff -u <(echo "$wanted") \
    <(grep -zE '^(PATH|TRIREME_BUNDLE|(OPAL|PMIX|HWLOC)_[A-Z_]+|OMPI_MCA_orte_[a-z_]+)=' "$work/env" | tr '\0' '\n' | LC_ALL=C sort); then
    echo "ok: $shell: $1"
  else
    echo "FAILED: $shell: $1: $output"
    failures=$((failures + 1))
  fi
  rm -f "$work/program" "$work/env"
}
check "by its path" "$work/elsewhere" "$source '$bundle/$file'"
check "by a relative path" "$work" "$source './a bundle/$file'"
check "twice" / "$source '$bundle/$file'; $source '$bundle/$file'"
check "in its own folder" "$bundle" "$source ./$file"
[[ $file != env.sh ]] || check "in a subshell" "$work" "(. './a bundle/env.sh'); . './a bundle/env.sh'"
# With two bundles, the one sourced last comes first.
cp -r "$bundle" "$work/b"
wanted=${wanted/"PATH=$bundle/bin:"/"PATH=$bundle/bin:$work/b/bin:"}
check "after another, and once more" / "$source '$bundle/$file'; $source '$work/b/$file'; $source '$bundle/$file'"
exit $((failures > 0))
