#!/usr/bin/env bash
# Tests install.cmake, launch/manual.cmake and version.cmake with a fake trireme program, in a
# folder whose name has a space: other files are kept, other users can install, and packages of
# later commits have later versions.
#   tests/deploy/install_rules_test.sh
# shellcheck disable=SC2317  # functions are called by check
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/../../launch/common.sh"
arguments 0 "$@"
work=$(realpath "$(mktemp -d)")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
chmod 755 "$work" # for other users
source="$work/a clone/source" tree="$work/a clone/build"
mkdir -p "$source/data" "$work/a" "$work/clone/build"
cp -r "$root"/{install.cmake,version.cmake,launch,deploy,docs} "$source/"
cp -r "$root/data/digits" "$source/data/"
# Files that a command would affect if it split paths at spaces.
touch "$work/a/stays" "$work/clone/build/stays"

cat >"$source/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(trireme VERSION 0.1.0 LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_custom_target(trireme_version COMMAND ${CMAKE_COMMAND} -D SOURCE=${CMAKE_SOURCE_DIR} -D RELEASE=${PROJECT_VERSION}
                  -D OUT=${CMAKE_BINARY_DIR} -P ${CMAKE_SOURCE_DIR}/version.cmake VERBATIM)
add_executable(trireme program.cc)
add_executable(trireme-sentencepiece program.cc)
add_dependencies(trireme trireme_version)
include(launch/manual.cmake)
include(install.cmake)
TEXT
cat >"$source/program.cc" <<'TEXT'
#include <fstream>
#include <string>
int main(int argc, char** argv) {
  if (argc == 7 && std::string(argv[2]) == "--man") std::ofstream(std::string(argv[3]) + "/trireme.1") << "a page\n";
  return argc == 7 ? 0 : 1;
}
TEXT

# shellcheck source=tests/deploy/checks.sh
. "$root/tests/deploy/checks.sh"
prints() { # prints PATTERN COMMAND...: succeeds if the command prints a line with the pattern
  local pattern=$1
  shift
  "$@" | grep -E -e "$pattern"
}
commit() { # commit DATE
  git -C "$source" -c init.defaultBranch=main init -q
  git -C "$source" add -A
  GIT_COMMITTER_DATE=$1 git -C "$source" -c user.name=a -c user.email=a@b commit -q --allow-empty -m "$1" --date "$1"
}
built() {
  cmake -S "$source" -B "$tree" -DCMAKE_BUILD_TYPE=Release && cmake --build "$tree"
}
commit "2026-01-02T03:04:05 +0000"
check "configures and builds" built
check "the version is that of the commit" grep -qxE '0\.1\.0\+git20260102030405\.[0-9a-f]{8}' "$tree/version"
check "a manual page is built" test -s "$tree/share/man/man1/trireme.1"

everything() { find "$tree" -mindepth 1 -printf '%P %s %T@\n' | sort; }
everything >"$work/before"
check "installs" cmake --install "$tree" --prefix "$work/a prefix"
check "... the manual page" cmp "$tree/share/man/man1/trireme.1" "$work/a prefix/share/man/man1/trireme.1"
everything >"$work/after"
check "... without a change to the build tree" diff "$work/before" "$work/after"
check "the list of installed files is complete" \
  diff <(cd "$work/a prefix" && find . -type f | sort) <(sed 's#^#./#' "$work/a prefix/share/trireme/installed.txt" | sort)

# With a relative prefix, whose name is that of a folder in it, after another version.
relative=$work/elsewhere/share
mkdir -p "$relative"/{bin,share/trireme}
touch "$relative/bin/old"
echo bin/old >"$relative/share/trireme/installed.txt"
check "installs with a relative prefix" env -C "$work/elsewhere" cmake --install "$tree" --prefix share
check "... and lists its files and those of the version before" \
  diff <(cd "$relative" && find . -type f | sort) <(sed 's#^#./#' "$relative/share/trireme/installed.txt" | sort)

# The list of files replaces a link instead of following it.
mkdir -p "$work/private/share/trireme"
echo kept >"$work/linked"
ln -s "$work/linked" "$work/private/share/trireme/installed.txt"
check "installs over a link" cmake --install "$tree" --prefix "$work/private"
check "... without writing through it" grep -qxF kept "$work/linked"
check "refuses a prefix with a semicolon" prints "contains a semicolon" \
  bash -c "! cmake --install '$tree' --prefix '$work/a;b' 2>&1 && ! [[ -e '$work/a;b' ]]"

# Another user, who may read the build tree but not write to it.
mkdir "$work/other prefix"
other=()
if ((EUID == 0)); then
  chown 65534:65534 "$work/other prefix"
  other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
chmod a-w "$tree"
check "another user installs" "${other[@]}" cmake --install "$tree" --prefix "$work/other prefix"
chmod u+w "$tree"
check "... the same" diff -r "$work/a prefix" "$work/other prefix"

version_of() { dpkg-deb --field "$work/$1"/*.deb Version; }
pack() { # pack FOLDER: writes a .deb and an archive
  (umask 077 && cpack --config "$tree/CPackConfig.cmake" -B "$work/$1")
}
if command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null; then
  check "cpack makes packages" pack first
  check "everybody may read its files" prints '^0$' bash -c "dpkg-deb -c '$work'/first/*.deb | grep -c 'r[wx-]*------ ' || true"
  check "the archive is named for the system whose libraries it needs" \
    tar -tf "$work/first/trireme-$(<"$tree/version")-$(. /etc/os-release && echo "$ID$VERSION_ID")-$(uname -m).tar.gz"
  stamp=$(stat -c %Y.%y "$tree/version.cc")
  check "builds again" built
  check "... without touching the version" test "$(stat -c %Y.%y "$tree/version.cc")" = "$stamp"
  commit "2026-01-02T03:04:06 +0000"
  check "builds the next commit" built
  check "packs it" pack second
  check "its version is the later one for dpkg" dpkg --compare-versions "$(version_of first)" lt "$(version_of second)"
  check "... and that of the release comes after it" dpkg --compare-versions "$(version_of second)" lt 0.1.1
else
  echo "skipped: no dpkg-shlibdeps or no file(1): no packages"
fi
# The command in docs/installed.md.
(cd "$work/a prefix" && xargs -d '\n' rm -f -- <share/trireme/installed.txt)
check "... which can be removed" prints '^0$' bash -c "find '$work/a prefix' -type f | wc -l"
rm -rf "$source/.git"
check "builds outside of a clone" built
check "... the release" grep -qxF 0.1.0 "$tree/version"
check "files with parts of the paths as names are untouched" test -e "$work/a/stays" -a -e "$work/clone/build/stays"

# The real project, without its presets and without a writable folder for ccache.
configure=(env -u CCACHE_DIR -u XDG_CACHE_HOME HOME=/proc/nowhere cmake -G "Unix Makefiles" -S "$root" -B "$work/project" -D TRIREME_CUDA=OFF -D TRIREME_TESTS=OFF)
check "refuses unknown values of TRIREME_CUDA" prints "TRIREME_CUDA is MAYBE; choose AUTO, ON or OFF" \
  bash -c '! "$@" 2>&1' bash "${configure[@]}" -D TRIREME_CUDA=maybe
rm -rf "$work/project"
check "configures as a release build" prints "CMAKE_BUILD_TYPE is not set: using Release" "${configure[@]}"
check "... which stays one" prints "^CMAKE_BUILD_TYPE:STRING=Release$" cat "$work/project/CMakeCache.txt"
if command -v ccache >/dev/null; then
  check "... without ccache if it cannot write" prints "^-- Without ccache: " "${configure[@]}"
  check "... calling the compiler directly" \
    bash -c "! grep -q ccache '$work/project/launch/CMakeFiles/trireme_program.dir/build.make'"
fi
exit $((failures > 0))
