#compdef trireme trireme-get-data trireme-supervise supervise mpirun mpiexec srun
# Completion of trireme for zsh, also after mpirun, mpiexec, srun and trireme-supervise. compinit
# loads the installed script, _trireme in a folder of $fpath. In a build tree:
#   source <(trireme completion zsh)
# The completions come from the program itself, so the script works with any version of it.

_trireme() {
  local word line program typed home
  local -i i first
  local -a complete open complete_shown open_shown
  if [[ $service == trireme-get-data ]]; then
    (( CURRENT == 2 )) && compadd cifar10 fashion-mnist mnist shakespeare speakers || _files -/
    return
  fi
  for ((i = 1; i < CURRENT; ++i)); do
    word=${(Q)words[i]}
    if [[ $word == : ]]; then # mpirun and srun: another program begins
      program=
    elif [[ -z $program && ${word:t} == trireme ]]; then
      program=$(whence -p -- "${word/#\~\//$HOME/}") && first=$((i + 1))
    fi
  done
  if [[ -z $program ]]; then
    ${_trireme_before[$service]:-_default}
    return
  fi
  typed=${(Q)PREFIX}
  compset -P '\~/' && home='~/' # is not quoted, unlike the rest
  for line in "${(@f)$("$program" completion words -- "${(@Q)words[first,CURRENT-1]}" "$typed")}"; do
    line=${line#$home}
    word=${line%%$'\t'*}
    if [[ $word == *[/.=] ]]; then
      open+=("$word") open_shown+=("${line/$'\t'/  -- }")
    elif [[ -n $word ]]; then
      complete+=("$word") complete_shown+=("${line/$'\t'/  -- }")
    fi
  done
  (( $#complete )) && compadd -l -d complete_shown -a complete
  (( $#open )) && compadd -l -S '' -d open_shown -a open # incomplete: no space
}

# Existing completion functions of the launchers are kept for command lines without trireme.
typeset -gA _trireme_before
if [[ ${funcstack[1]} == _trireme ]]; then
  _trireme "$@"
else
  () {
    local launcher
    for launcher in mpirun mpiexec srun; do
      [[ ${_comps[$launcher]-} == (|_trireme) ]] || _trireme_before[$launcher]=$_comps[$launcher]
    done
  }
  compdef _trireme trireme trireme-get-data trireme-supervise supervise mpirun mpiexec srun
fi
