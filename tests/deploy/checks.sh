# Sourced by tests: counts what fails.
# shellcheck shell=bash
failures=0
check() { # check WHAT COMMAND...: it succeeds
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok: $what"
  else
    printf 'FAILED: %s\n%s\n' "$what" "$output"
    failures=$((failures + 1))
  fi
}
