#!/usr/bin/env bash
# Checks that every script prints its help for --help, exits with 2 for an unknown option, and does
# nothing else in both cases, that a user who cannot write to the checkout gets one clear message, and
# that a script that is ended also ends the command that it runs.
# The scripts run in a copy of the checkout, where programs that change the system are replaced.
#   tests/launch/scripts_test.sh
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 0 "$@"
if ! git -C "$root" rev-parse --git-dir >/dev/null 2>&1; then
  echo "skipped: $root is not a checkout of git"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/tree/folder"
git -C "$root" ls-files -z --cached --others --exclude-standard |
  tar -C "$root" --null --files-from=- --ignore-failed-read -cf - 2>/dev/null | tar -C "$work/tree" -xf -

for program in apt-get sudo cmake ninja ctest mpirun srun sbatch squeue scontrol curl wget pip clang-format shellcheck docker; do
  printf '#!/bin/sh\necho "%s $*" >>"%s/called"\n' "$program" "$work" >"$work/bin/$program"
done
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH PYTHONDONTWRITEBYTECODE=1
unset SLURM_SUBMIT_DIR

# Prints the files of the tree and the programs that were called.
traces() {
  find "$work/tree" -printf '%P %s %T@\n' | sort
  cat "$work/called" 2>/dev/null || true
}

failures=0
fail() {
  echo "FAILED: $*" >&2
  sed 's/^/  | /' "$work/stdout" "$work/stderr" >&2
  failures=$((failures + 1))
}
# run SCRIPT ARGUMENT: sets `status` to the exit code and checks that the script had no side
# effects.
run() {
  status=0
  (cd "$work/tree/folder" && timeout 60 "../$1" "$2") </dev/null >"$work/stdout" 2>"$work/stderr" || status=$?
  traces >"$work/after"
  diff "$work/before" "$work/after" >"$work/diff" || fail "$1 $2 has side effects: $(head -n 6 "$work/diff")"
  mv "$work/after" "$work/before"
}

traces >"$work/before"
scripts=0
for script in $(cd "$work/tree" && grep -rlE --exclude-dir=folder '^#!' . | sed 's/^\.\///' | sort); do
  case $script in
    tests/launch/completion/*) continue ;; # helpers of completion_test
  esac
  [[ $(head -c 2 "$work/tree/$script") == '#!' ]] || continue
  scripts=$((scripts + 1))
  run "$script" --help
  [[ $status == 0 ]] || fail "$script --help ends with $status"
  grep -qF -- "$(basename "$script")" "$work/stdout" || fail "$script --help does not print how to call it"
  # Lines that are indented in the head comment, such as options, must be indented in the help.
  awk 'NR > 1 && !/^#/ { exit } /^#  +[^ ]/ { print substr($0, 3) }' "$work/tree/$script" >"$work/indented"
  [[ $(grep -cxF -f "$work/indented" "$work/stdout") -ge $(wc -l <"$work/indented") ]] ||
    fail "$script --help does not print its indented lines as they are"
  [[ ! -s $work/stderr ]] || fail "$script --help writes to stderr"
  run "$script" --no-such-option
  [[ $status == 2 ]] || fail "$script --no-such-option ends with $status"
  [[ -s $work/stderr ]] || fail "$script --no-such-option prints no message"
done
for script in get-data supervise; do
  cp "$work/tree/launch/$script" "$work/bin/trireme-$script"
  "$work/bin/trireme-$script" --help >"$work/stdout" 2>"$work/stderr" || fail "trireme-$script --help"
  [[ $(<"$work/stdout") == *"  trireme-$script "* && $(<"$work/stdout") != *"launch/$script"* ]] ||
    fail "trireme-$script --help does not print its installed name"
  "$work/bin/trireme-$script" --no-such-option >"$work/stdout" 2>"$work/stderr" && fail "trireme-$script --no-such-option"
  grep -q "^trireme-$script: " "$work/stderr" || fail "trireme-$script does not print its installed name"
done

# Without write access. Root could write anyway, so the scripts run as another user.
mkdir -p "$work/tree/build/release/bin"
cp "$work/bin/cmake" "$work/tree/build/release/bin/trireme"
chmod -R a+rX,a-w "$work/tree"
chmod a+x "$work"
as_user=()
((EUID != 0)) || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
refused() { # refused SCRIPT ARGUMENT...
  status=0
  (cd "$work/tree" && "${as_user[@]}" "$@") </dev/null >"$work/stdout" 2>"$work/stderr" || status=$?
  [[ $status == 1 && $(wc -l <"$work/stderr") == 1 && $(<"$work/stderr") == *"$1: cannot write to "* ]] ||
    fail "$* without write access ends with $status"
}
for script in launch/quickstart tests/run tests/fuzz/run docs/build deploy/bundle; do
  refused "$script"
done
refused launch/get-data mnist
refused launch/supervise -- mpirun trireme train x.txtpb --run-dir runs/x
refused deploy/prometheus/slurm-targets targets
chmod -R u+w "$work/tree"

# Two downloads into one folder wrote to one file; one of them failed.
cat >"$work/bin/curl" <<'EOF'
#!/bin/sh
while [ "$1" != --output ]; do shift; done
echo text >"$2"
sleep 0.3
EOF
printf '#!/bin/sh\necho "6fb458f1232090904fb40fe944165e91  -"\n' >"$work/bin/md5sum"
chmod +x "$work/bin/md5sum"
: >"$work/stderr"
"$root/launch/get-data" shakespeare "$work/texts" >"$work/stdout" 2>&1 &
"$root/launch/get-data" shakespeare "$work/texts" >>"$work/stderr" 2>&1 || fail "the second get-data"
wait $! || fail "the first get-data"
[[ $(ls -A "$work/texts") == input.txt ]] || fail "get-data leaves $(ls -A "$work/texts")"

# A build folder that was configured for this folder, also by its other name, and one that was moved
# with the repository.
ln -s "$work/tree" "$work/link"
for configured in "$work/tree" "$work/link" "$work/elsewhere"; do
  echo "CMAKE_HOME_DIRECTORY:INTERNAL=$configured" >"$work/tree/build/release/CMakeCache.txt"
  bash -c ". '$work/tree/launch/common.sh'; build release" >"$work/stdout" 2>"$work/stderr" || fail "build ends with $?"
  [[ -e $work/tree/build/release/CMakeCache.txt ]] && kept=yes || kept=no
  [[ $kept == yes || $configured == "$work/elsewhere" ]] || fail "build deletes the configuration for $configured"
  [[ $kept == no || $configured != "$work/elsewhere" ]] || fail "build keeps the configuration for $configured"
done

# A script that is ended by its process id.
mkdir "$work/logs"
cat >"$work/long" <<EOF
echo \$\$ >"$work/pid.new"
mv "$work/pid.new" "$work/pid"
exec sleep 60
EOF
TMPDIR=$work/logs bash -c ". '$root/launch/common.sh'; quietly sh '$work/long'" >"$work/stdout" 2>"$work/stderr" &
script=$!
for _ in {1..100}; do [[ -e $work/pid ]] || sleep 0.1; done
[[ -e $work/pid ]] || fail "a script does not start its command"
kill "$script"
wait "$script" && fail "a script that is ended exits with 0"
! kill -0 "$(<"$work/pid")" 2>/dev/null || fail "a script that is ended leaves its command running"
[[ -z $(ls "$work/logs") ]] || fail "a script that is ended leaves its log"

((scripts > 15)) || fail "only $scripts scripts were found"
echo "$scripts scripts, $failures failures"
((failures == 0))
