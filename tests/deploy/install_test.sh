#!/usr/bin/env bash
# Tests that cmake --install and cpack install all files, and that the program works from there,
# outside of the repository.
#   tests/deploy/install_test.sh BUILD_TREE
# shellcheck disable=SC2317  # functions are called by check
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 1 "$@"
tree=$(realpath "$1") source=$root
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
mkdir "$work/elsewhere"
cd "$work/elsewhere"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

# shellcheck source=tests/deploy/checks.sh
. "$root/tests/deploy/checks.sh"
prints() { # prints PATTERN COMMAND...: succeeds if the command succeeds and prints the pattern
  local pattern=$1 output
  shift
  output=$("$@" 2>&1) || {
    echo "$output"
    return 1
  }
  grep -qE -e "$pattern" <<<"$output" || {
    printf '%s\ndoes not contain %s\n' "$output" "$pattern"
    return 1
  }
}
# Lists the files below a folder, except manual pages, of which pages() prints the number.
content() { (cd "$1" && find . -type f ! -path './share/man/*' ! -path ./share/trireme/installed.txt | LC_ALL=C sort) }
pages() {
  local script
  for script in get-data supervise; do
    [[ -s $1/share/man/man1/trireme-$script.1 ]] || echo "no page of trireme-$script" >&2
  done
  find "$1/share/man/man1" -name 'trireme-*.1' | wc -l
}

version=$(<"$tree/version")
check "version of the build tree" prints '^[0-9]+([.][0-9]+)+([+]git[0-9]{14}[.][0-9a-f]{8})?$' echo "$version"

wanted=$(
  cat <<'FILES'
./bin/trireme
./bin/trireme-get-data
./bin/trireme-sentencepiece
./bin/trireme-supervise
./share/bash-completion/completions/_mpiexec
./share/bash-completion/completions/_mpirun
./share/bash-completion/completions/_srun
./share/bash-completion/completions/trireme
./share/bash-completion/completions/trireme-get-data
./share/bash-completion/completions/trireme-supervise
./share/doc/trireme/copyright
FILES
  (cd "$source" && find docs -name '*.md' -o -name '*.png' -o -name '*.svg' | sed 's#^#./share/doc/trireme/#')
  cat <<'FILES'
./share/fish/vendor_completions.d/trireme.fish
./share/fish/vendor_conf.d/trireme.fish
FILES
  (cd "$source/launch" && find configs -type f | sed 's#^#./share/trireme/#')
  cat <<'FILES'
./share/trireme/data/digits/README.md
./share/trireme/data/digits/digits.csv.gz
./share/zsh/site-functions/_trireme
./share/zsh/vendor-completions/_trireme
FILES
)
has_all_files() { diff <(LC_ALL=C sort <<<"$wanted") <(content "$1") && (($(pages "$1") > 15)); }

# reads_manual COMMAND...: succeeds if the command prints each page without a warning.
reads_manual() {
  local page
  for page in "$prefix"/share/man/man1/*.1; do
    "$@" "$page" >"$work/shown" 2>"$work/warnings" || cat "$work/warnings"
    [[ ! -s $work/warnings ]] || { echo "$page:" && cat "$work/warnings" && return 1; }
    grep -q "Trireme Manual" "$work/shown" || { echo "$page: empty" && return 1; }
  done
}

# runs_from PREFIX: checks what a user does first.
runs_from() {
  local prefix=$1 bin=$1/bin
  rm -rf runs
  check "version" prints "^trireme ${version//+/[+]}\$" "$bin/trireme" --version
  check "trains an installed configuration by its name" prints '^done: .* 3 steps' \
    "$bin/trireme" train digits.txtpb --run-dir runs/a --set train.max_steps=3
  check "... by its path, on two ranks" prints "2 ranks" mpirun --quiet -np 2 --oversubscribe --bind-to none \
    "$bin/trireme" train "$prefix/share/trireme/configs/digits.txtpb" --run-dir runs/b --set train.max_steps=3
  check "evaluates the trained network" prints "^digits-cnn after step 3: .* accuracy" "$bin/trireme" eval runs/a
}

# first_run PREFIX: runs the commands under "First run" in the installed guide.
first_run() {
  rm -rf runs
  awk '/^## First run/ { here = 1 } here && /^```$/ { exit } block { print } here && /^```sh/ { block = 1 }' \
    "$1/share/doc/trireme/docs/installed.md" >first-run
  PATH=$1/bin:$PATH OMPI_MCA_rmaps_base_oversubscribe=1 bash -e first-run
}

# installed.txt must list all files, so that they can be removed.
cmake --install "$tree" --prefix "$work/a prefix" >/dev/null
prefix="$work/a prefix"
installed() { sed 's#^#./#' "$prefix/share/trireme/installed.txt" | LC_ALL=C sort; }
check "files to remove" diff <(cd "$prefix" && find . -type f | LC_ALL=C sort) <(installed)
check "files of the installation" has_all_files "$prefix"
runs_from "$prefix"
check "the first run of docs/installed.md" prints "^digits.csv: record 2" first_run "$prefix"
check "a missing data set is explained, with exit code 3" prints "not a folder in .*; trireme-get-data downloads MNIST" \
  bash -c "'$prefix/bin/trireme' train mnist.txtpb --run-dir runs/m; ((\$? == 3))"
check "a mistyped configuration gets the nearest" prints "did you mean 'digits.txtpb'" \
  bash -c "! '$prefix/bin/trireme' train digit.txtpb --run-dir runs/m"
check "data sets are downloaded to the working directory" prints "$work/elsewhere/data/mnist" \
  bash -c "! TRIREME_MIRROR=file:///nowhere '$prefix/bin/trireme-get-data' mnist"
check "the installed completion is the one that the program prints" cmp "$prefix/share/zsh/site-functions/_trireme" \
  <("$prefix/bin/trireme" completion zsh)
check "bash completes after mpirun" prints '^train$' env PATH="$prefix/bin:$PATH" bash --noprofile --norc \
  "$source/tests/launch/completion/offers.bash" "$prefix/share/bash-completion/completions/_mpirun" "mpirun -np 2 trireme tr"
if command -v mandoc >/dev/null; then
  check "mandoc finds no errors in the manual" mandoc -Tlint -Wwarning "$prefix"/share/man/man1/*.1
  check "... and prints it" reads_manual mandoc -Tascii
else
  echo "skipped: mandoc is not installed; launch/setup --tests installs it"
fi
if command -v groff >/dev/null; then
  check "groff prints the manual without a warning" reads_manual groff -man -Tascii -ww
fi

pack() { cpack --config "$tree/CPackConfig.cmake" -G "$1" -B "$work/$1"; }
check "cpack writes an archive" pack TGZ
mkdir "$work/unpacked"
check "... which can be unpacked" tar -xf "$work"/TGZ/trireme-*.tar.gz -C "$work/unpacked" --strip-components=1
check "files of the archive" has_all_files "$work/unpacked"
if command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null; then
  check "cpack writes a .deb" pack DEB
  deb=$(echo "$work"/DEB/trireme_*.deb)
  for package in openmpi-bin libopenmpi3 libprotobuf libdnnl libc6; do
    check "the .deb depends on $package" prints "(^| )$package" dpkg-deb --field "$deb" Depends
  done
  if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then # in other releases they have other names
    # shellcheck disable=SC2016  # the quotes are Markdown
    listed=$(tr -s '\n' ' ' <"$source/docs/deploying.md" | sed -E 's/.*Depends` lists: `([^`]*)`.*/\1/' | tr ' ' '\n')
    check "docs/deploying.md lists the packages" diff <(LC_ALL=C sort <<<"$listed") \
      <(dpkg-deb --field "$deb" Depends | sed -E 's/ \([^)]*\)//g; s/, /\n/g' | LC_ALL=C sort)
  fi
  check "... which unpacks into an empty root" dpkg-deb --extract "$deb" "$work/root"
  check "files of the .deb" has_all_files "$work/root/usr"
  check "and nothing else" prints '^1$' bash -c "ls '$work/root' | wc -l"
  runs_from "$work/root/usr"
else
  echo "skipped: no dpkg-shlibdeps or no file(1): no .deb"
fi
exit $((failures > 0))
