# Completion of trireme for bash, also after mpirun, mpiexec, srun, trireme-supervise, env, nice and
# nohup.
# bash-completion loads the installed script. Without it, or in a build tree:
#   source <(trireme completion bash)
# The completions come from the program itself, so the script works with any version of it.
# shellcheck shell=bash

# Splits `line` into `words` as bash does, at spaces outside quotes. Sets `quote` to the quote that
# is still open, if any.
_trireme_split() {
  local word="" begun="" char i
  words=() quote=""
  for ((i = 0; i < ${#line}; ++i)); do
    char=${line:i:1}
    if [[ -n $quote && $char == "$quote" ]]; then
      quote=""
    elif [[ $char == \\ && $quote != "'" ]]; then
      word+=${line:$((++i)):1}
    elif [[ -n $quote ]]; then
      word+=$char
    elif [[ $char == [\"\'] ]]; then
      quote=$char begun=1
    elif [[ $char != [[:space:]] ]]; then
      word+=$char
    elif [[ -n $word$begun ]]; then
      words+=("$word")
      word="" begun=""
    fi
  done
  words+=("$word") # the one being typed
}

# Sets `program` to trireme's path and `first` to the index of the word after it. Fails if `words`
# contain no trireme.
_trireme_find() {
  local i
  program=""
  for ((i = 0; i + 1 < ${#words[@]}; ++i)); do
    if [[ ${words[i]} == : ]]; then # mpirun and srun: another program begins
      program=""
    elif [[ -z $program && ${words[i]##*/} == trireme ]]; then
      program=$(type -P -- "${words[i]/#\~\//${HOME-}/}") && first=$((i + 1))
    fi
  done
  [[ -n $program ]]
}

_trireme() {
  local line=${COMP_LINE:0:COMP_POINT} words quote program first word home cut="" open=""
  COMPREPLY=()
  _trireme_split
  if ! _trireme_find; then
    [[ -z ${_trireme_before[${1##*/}]-} ]] || "${_trireme_before[${1##*/}]}" "$@"
    return
  fi
  # Launchers fall back to completing files. trireme decides itself where a file can be.
  compopt +o default +o bashdefault 2>/dev/null
  # Bash also splits words after "=" and ":", which are part of trireme's words.
  word=${words[${#words[@]} - 1]}
  [[ -n $quote || $word != *[=:]* ]] || cut=${word%"${word##*[=:]}"}
  while IFS=$'\t' read -r word _; do
    [[ -n $word ]] || continue
    [[ $word != *[/.=] ]] || open=1
    word=${word#"$cut"}
    case $quote in
      "") # do not quote a leading tilde
        home=""
        [[ $word != \~/* ]] || home=\~/
        printf -v word '%s%q' "$home" "${word#"$home"}"
        ;;
      \") word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//\$/\\\$} word=${word//\`/\\\`} ;;
      *) word=${word//\'/\'\\\'\'} ;;
    esac
    COMPREPLY+=("$word")
  done < <("$program" completion words -- "${words[@]:first}")
  # No space after an incomplete word.
  [[ ${#COMPREPLY[@]} != 1 || -z $open ]] || compopt -o nospace
  return 0
}

# Registers the completion. Existing completion functions of the launchers are kept for command
# lines without trireme.
_trireme_register() {
  local launcher specs
  declare -gA _trireme_before
  complete -F _trireme trireme
  complete -o default -W "cifar10 fashion-mnist mnist shakespeare speakers" trireme-get-data
  specs=$(complete -p)$'\n'
  for launcher in mpirun mpiexec srun supervise trireme-supervise env nice nohup; do
    if [[ $specs =~ "-F "([^ $'\n']+)" $launcher"$'\n' ]]; then
      [[ ${BASH_REMATCH[1]} == _trireme ]] || _trireme_before[$launcher]=${BASH_REMATCH[1]}
    elif [[ $specs == *" $launcher"$'\n'* ]]; then
      continue # completed by a word list or another command
    fi
    complete -o bashdefault -o default -F _trireme "$launcher"
  done
}
_trireme_register
