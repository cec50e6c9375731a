#!/usr/bin/env bash
# Tests launch/get-data with a mirror in a folder. The published files are not available, so md5sum
# is replaced by one that prints the sum in the first line of a file, and CIFAR-10's sum for any
# archive.
#   tests/data/get_data_test.sh launch/get-data
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 1 "$@"
get_data=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/mirror"
export PATH=$work/bin:$PATH TRIREME_MIRROR=file://$work/mirror

cat >"$work/bin/md5sum" <<'SHIM'
#!/usr/bin/env bash
content=$(mktemp)
cat >"$content"
if [[ $(head -c 2 "$content" | od -An -tx1 | tr -d ' ') == 1f8b ]]; then
  echo "c32a1d4ab5d03f1284b67883e8d87530  -"
else
  echo "$(head -n 1 "$content" | cut -d' ' -f2)  -"
fi
rm -f "$content"
SHIM
chmod +x "$work/bin/md5sum"

failures=0
check() { # check WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    echo "FAILED: $what" >&2
    sed 's/^/  | /' "$work/output" >&2
    failures=$((failures + 1))
  fi
}
run() { # run NAME: sets $status, writes the output to $work/output
  status=0
  "$get_data" "$1" "$work/$1" >"$work/output" 2>&1 || status=$?
}
# shellcheck disable=SC2317  # called by check
says() { grep -qF -- "$1" "$work/output"; }
# shellcheck disable=SC2317
is() { [[ $1 == "$2" ]]; }

run mnist
check "an unreachable mirror fails" is "$status" 1
check "... and says so" says " from $TRIREME_MIRROR; check the network"
check "... leaving no file of the final name" is "$(find "$work/mnist" -name '*.gz')" ""

while read -r name sum; do
  printf 'sum %s\n%s\n' "$sum" "$name: the rest of the file" >"$work/mirror/$name"
done <<'SUMS'
train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873
train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432
t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3
t10k-labels-idx1-ubyte.gz 00000000000000000000000000000000
SUMS
# Truncated by an earlier attempt in the middle of the sum, so that the check does not pass yet.
head -c 20 "$work/mirror/train-images-idx3-ubyte.gz" >"$work/mnist/train-images-idx3-ubyte.gz.part"
run mnist
check "a damaged file fails" is "$status" 1
check "... and is named" says "t10k-labels-idx1-ubyte.gz from $TRIREME_MIRROR is not the published file"
check "... and deleted" is "$(find "$work/mnist" -name 't10k-labels*')" ""
check "a cut-off download is completed" cmp -s "$work/mirror/train-images-idx3-ubyte.gz" \
  "$work/mnist/train-images-idx3-ubyte.gz"

printf 'sum %s\n' ec29112dd5afa0611ce80d1b7f02629c >"$work/mirror/t10k-labels-idx1-ubyte.gz"
run mnist
check "all files are fetched" is "$status" 0
check "... into the folder" is "$(find "$work/mnist" -type f | wc -l)" 4
check "only what is missing is fetched" is "$(grep -c "^$TRIREME_MIRROR" "$work/output")" 1
run mnist
check "a second time is quick" says "mnist is already in $work/mnist"
check "... and succeeds" is "$status" 0

echo "my own" >"$work/mnist/train-labels-idx1-ubyte.gz"
run mnist
check "a foreign file is refused" says "train-labels-idx1-ubyte.gz exists, but is not the published file"
check "... and not modified" is "$(cat "$work/mnist/train-labels-idx1-ubyte.gz")" "my own"

mkdir "$work/cifar-10-batches-bin"
for name in data_batch_{1..5} test_batch; do
  truncate -s 30730000 "$work/cifar-10-batches-bin/$name.bin"
done
tar -czf "$work/mirror/cifar-10-binary.tar.gz" -C "$work" cifar-10-batches-bin
run cifar10
check "cifar10 is unpacked" is "$status" 0
check "... into the folder, the archive gone" is "$(find "$work/cifar10" -mindepth 1 | wc -l)" 6
run cifar10
check "cifar10 a second time is quick" says "cifar10 is already in $work/cifar10"

run imagenet
check "an unknown set is bad usage" is "$status" 2
check "... and lists the known sets" says "mnist, fashion-mnist, cifar10, shakespeare and speakers"
exit $((failures > 0))
