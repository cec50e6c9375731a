#!/usr/bin/env bash
# Prints what bash would offer for a line with the cursor at its end, a word a line; "(no space)" where the word is not
# whole yet, "(files)" where it would offer files instead of nothing.
#   bash --noprofile --norc offers.bash SCRIPT LINE
set -u
script=$1 line=$2
# Outside of a completion there is no such thing.
compopt() {
  [[ $* != "-o nospace" ]] || echo "(no space)"
  [[ " $* " != *" +o default "* ]] || files=""
}
# What a launcher's own completion offers stays.
_other() { COMPREPLY=(--of-another); }
complete -F _other srun
# shellcheck source=launch/completion/trireme.bash
. "$script"
# shellcheck source=launch/completion/trireme.bash
. "$script" # a second time changes nothing
# As bash does: the last simple command, without assignments; its function, its name and the word in front of the cursor.
simple=${line##*[;|] }
while [[ ${simple%% *} == *=* ]]; do simple=${simple#* }; done
name=${simple%% *}
specs=$(complete -p "${name##*/}") files=""
[[ $specs != *"-o default "* ]] || files="(files)"
if [[ $specs =~ -W\ \'([^\']*)\' ]]; then
  compgen -W "${BASH_REMATCH[1]}" -- "${simple##* }"
  exit
fi
[[ $specs =~ "-F "([^ ]+) ]]
export COMP_LINE=$simple COMP_POINT=${#simple}
COMPREPLY=()
"${BASH_REMATCH[1]}" "$name" "${simple##* }"
for word in ${COMPREPLY[@]+"${COMPREPLY[@]}"}; do
  echo "$word"
done
((${#COMPREPLY[@]})) || echo "$files"
