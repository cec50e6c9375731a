#!/usr/bin/env bash
# Prints the completions that bash offers for a line with the cursor at its end, one per line; also
# "(no space)" if the word is incomplete, and "(files)" if bash would complete files because there
# are no other completions.
#   bash --noprofile --norc offers.bash SCRIPT LINE
set -u
script=$1 line=$2
# Replaces the builtin, which fails outside of a completion.
compopt() {
  [[ $* != "-o nospace" ]] || echo "(no space)"
  [[ " $* " != *" +o default "* ]] || files=""
}
# A launcher's own completion, which must be kept.
_other() { COMPREPLY=(--of-another); }
complete -F _other srun
# shellcheck source=launch/completion/trireme.bash
. "$script"
# shellcheck source=launch/completion/trireme.bash
. "$script" # a second time changes nothing
# Does what bash does: takes the last simple command without its assignments, and calls its
# completion function with its name and the word before the cursor.
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
