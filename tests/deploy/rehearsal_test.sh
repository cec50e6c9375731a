#!/usr/bin/env bash
# Runs slices of tests/gpu from a bundle with the emulated programs, unpacked by Python outside of
# the repository. One slice is killed, and the next continues from its archive.
#   tests/deploy/rehearsal_test.sh BUNDLE_SCRIPT BUILD_TREE
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 2 "$@"
bundle_script=$1 tree=$2
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work" || true' EXIT # processes of the killed slice may still write there

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

"$bundle_script" --emulated --build "$tree" -o "$work/bundle.tar.xz"
megabytes=$(du -m "$work/bundle.tar.xz" | cut -f1)
((megabytes <= 30)) || fail "the archive has $megabytes MiB"
mkdir "$work/node"
cd "$work/node"
python3 -m tarfile -e "$work/bundle.tar.xz"
cd trireme-*/

rehearse=(python3 tests/gpu --rehearse --archive "$work/gpu.tar.gz")
result_of() { # result_of PART: prints its result in the newest slice of the archive
  python3 - "$work/gpu.tar.gz" "$1" <<'PYTHON'
import json, sys, tarfile
with tarfile.open(sys.argv[1]) as tar:
    slices = json.load(tar.extractfile("results.json"))["slices"]
print(next((part["result"] for part in slices[-1]["parts"] if part["name"] == sys.argv[2]), "no such part"))
PYTHON
}

"${rehearse[@]}" --slice 1 -o "$work/killed" '^(core_device_test|captured-is-eager.FP32)$' >"$work/log" 2>&1 &
program=$!
until [[ $(result_of captured-is-eager.FP32 2>/dev/null) == RUNNING ]]; do
  kill -0 $program 2>/dev/null || fail "slice 1 ended before it was killed: $(cat "$work/log")"
  sleep 0.02
done
kill -KILL $program
wait $program 2>/dev/null || true
[[ $(result_of core_device_test) == PASS ]] || fail "the archive lacks the parts that passed before the kill"
[[ $(result_of captured-is-eager.FP32) == RUNNING ]] || fail "the part was not killed"

"${rehearse[@]}" --slice 1 -o "$work/out" '^(core_device_test|captured-is-eager.FP32)$' --from "$work/gpu.tar.gz" |
  tee "$work/log"
grep -q 'core_device_test .*(earlier)' "$work/log" || fail "a part that had passed ran again"
[[ $(result_of captured-is-eager.FP32) == PASS ]] || fail "the part that was killed did not run again"
"${rehearse[@]}" --slice 2 -o "$work/out" '^nccl-of-one-rank.captured$' --from "$work/gpu.tar.gz"
