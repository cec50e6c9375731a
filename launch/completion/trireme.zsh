#compdef trireme trireme-get-data trireme-supervise supervise mpirun mpiexec srun
# Completion of trireme for zsh, also behind mpirun, mpiexec, srun and trireme-supervise. compinit finds it where it is installed, as
# _trireme in a folder of $fpath; from a build tree: source <(trireme completion zsh)
# The script asks the program itself, so that it fits any version of it.

_trireme() {
  local word line program typed home
  local -i i first
  local -a whole open whole_shown open_shown
  if [[ $service == trireme-get-data ]]; then
    (( CURRENT == 2 )) && compadd cifar10 fashion-mnist mnist || _files -/
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
  compset -P '\~/' && home='~/' # stays as it is, what comes after it is quoted
  for line in "${(@f)$("$program" completion words -- "${(@Q)words[first,CURRENT-1]}" "$typed")}"; do
    line=${line#$home}
    word=${line%%$'\t'*}
    if [[ $word == *[/.=] ]]; then
      open+=("$word") open_shown+=("${line/$'\t'/  -- }")
    elif [[ -n $word ]]; then
      whole+=("$word") whole_shown+=("${line/$'\t'/  -- }")
    fi
  done
  (( $#whole )) && compadd -l -d whole_shown -a whole
  (( $#open )) && compadd -l -S '' -d open_shown -a open # not whole yet: no space
}

# What completes the launchers' own options, where there is any: it gets the rest of the line.
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
