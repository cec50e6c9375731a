# Sourced by tests: runs checks and counts failures.
# shellcheck shell=bash
failures=0
check() { # check WHAT COMMAND...: checks that the command succeeds
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok: $what"
  else
    printf 'FAILED: %s\n%s\n' "$what" "$output"
    failures=$((failures + 1))
  fi
}
