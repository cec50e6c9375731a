#!/usr/bin/env bash
# Tests an archive of deploy/bundle in a root that has only glibc, a shell and tar: env.sh in two
# shells, doctor, a training run on two ranks, a test program.
#   tests/deploy/bundle_test.sh BUNDLE_SCRIPT BUILD_TREE
# Without permission to mount such a root it exits with 77, which CTest shows as skipped.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 2 "$@"

if [[ -z ${IN_NAMESPACE:-} ]]; then
  # Mounts of a separate namespace end with its last process, however the test ends.
  if ! unshare --mount --propagation private true 2>/dev/null; then
    echo "skipped: no permission to mount; run it as root"
    exit 77
  fi
  IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi

bundle_script=$1 tree=$2
work=$(mktemp -d)
trap 'umount -R "$work/root/proc" "$work/root/dev" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

mkdir "$work/stubs"
install /dev/stdin "$work/stubs/cmake" <<<"touch '$work/built'; exit 1"
for misuse in "-o" "--peers" "--build --no-tests" "-o $work/bundle.zip"; do
  # shellcheck disable=SC2086  # several arguments
  if PATH=$work/stubs:$PATH "$bundle_script" $misuse 2>"$work/error" ||
    ! grep -q "see --help" "$work/error" || [[ -e $work/built ]]; then
    echo "FAILED: bundle $misuse is not refused at once: $(<"$work/error")" >&2
    exit 1
  fi
done
(umask 077 && "$bundle_script" --build "$tree" -o "$work/bundle.tar.xz")
megabytes=$(du -m "$work/bundle.tar.xz" | cut -f1)
((megabytes <= 30)) || { echo "FAILED: the archive has $megabytes MiB" >&2; exit 1; }

root=$work/root
mkdir -p "$root"/{bin,dev,proc,tmp,home/user}
for tool in bash dash dirname id readlink tar; do
  cp -L "$(command -v "$tool")" "$root/bin/"
done
ln -s dash "$root/bin/sh"
# The libraries of the tools, then the other libraries of glibc.
for library in $(ldd "$root"/bin/* | grep -oE '/[^ ]+\.so[^ ]*' | sort -u); do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
glibc=$(dirname "$(ldd "$root/bin/bash" | grep -oE '/[^ ]+/libc\.so\.6')")
for library in m dl rt pthread resolv util; do
  cp -L "$glibc"/lib$library.so.[0-9] "$root$glibc/"
done
mount --rbind /proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/shm"
for device in null zero random urandom; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done

# inside COMMAND: runs the command in the root.
inside() {
  env -i PATH=/bin HOME=/home/user OMP_NUM_THREADS=1 "$(command -v chroot)" "$root" /bin/"$shell" -c "$1"
}
failures=0
check() { # check WHAT PATTERN COMMAND: checks that the command succeeds and prints the pattern
  local output
  if output=$(inside "$3" 2>&1) && grep -qE -e "$2" <<<"$output"; then
    echo "ok: $shell: $1"
  else
    printf 'FAILED: %s: %s\n%s\n' "$shell" "$1" "$output"
    failures=$((failures + 1))
  fi
}

shell=bash
check "unpacks" unpacked "cd /home/user && tar -xf - && echo unpacked" < <(xz -dc "$work/bundle.tar.xz")
name=$(cd "$root/home/user" && echo trireme-*)
mkdir "$work/python"
python3=$(python3 -c 'import sys; print(sys.executable)') # the program itself, not a wrapper script
if (cd "$work/python" && PATH=/nonexistent "$python3" -m tarfile -e "$work/bundle.tar.xz") &&
  "$(command -v diff)" -r "$work/python/$name" "$root/home/user/$name" && [[ -x $work/python/$name/tests/gpu ]]; then
  echo "ok: Python unpacks it without xz"
else
  echo "FAILED: Python does not unpack it without xz"
  failures=$((failures + 1))
fi
while read -r link; do
  if [[ ! -e $work/python/$name/$link ]]; then
    echo "FAILED: README.md links to $link, which does not exist"
    failures=$((failures + 1))
  fi
done < <(grep -oE '\]\([^):]+' "$work/python/$name/README.md" | sed 's/^..//; s/#.*//')
if [[ -n $(find "$work/python/$name" -type d ! -perm -055) ]]; then
  echo "FAILED: not everybody may read the folders"
  failures=$((failures + 1))
fi
while read -r license; do
  if [[ ! -s $work/python/$name/licenses/$license ]]; then
    echo "FAILED: licenses/$license is missing"
    failures=$((failures + 1))
  fi
done < <(grep -d skip -ohE 'common-licenses/(GPL|LGPL|Apache)-[0-9.]*[0-9]' "$work/python/$name"/licenses/* | sort -u)
rm -rf "$work/python"
for shell in bash sh; do
  source="cd / && . /home/user/$name/env.sh && . /home/user/$name/env.sh"
  check "sourcing twice changes PATH once" "^/home/user/${name//+/[+]}/bin:/bin$" "$source && echo \$PATH"
  check "its README and the guides that it links to exist" there "$source && cd \$TRIREME_BUNDLE && : <README.md &&
    cd share/doc/trireme && : <docs/troubleshooting.md <docs/configuration.md <docs/images/augmented.png <copyright && echo there"
  check "doctor runs" "^libraries .*oneDNN" "$source && trireme doctor"
  check "a test program runs" "PASSED" "$source && \$TRIREME_BUNDLE/tests/core_device_test"
  check "all test programs start" "^started" "$source && cd \$TRIREME_BUNDLE/tests &&
    while read -r test _; do ./\$test --gtest_list_tests || exit; done <gpu_programs && echo started"
  check "two ranks train" "^eval: .*accuracy 9[89]" "$source && cd \$TRIREME_BUNDLE &&
    mpirun --quiet -np 2 --oversubscribe --bind-to none trireme train launch/configs/digits.txtpb --device cpu \
      --run-dir /tmp/run-$shell"
done
((failures == 0))
