# Completion of trireme for fish, also after mpirun, mpiexec, srun, trireme-supervise, env, nice and
# nohup. fish loads the installed script. In a build tree:
#   trireme completion fish | source
# The completions come from the program itself, so the script works with any version of it.

# Prints trireme's path and the words after it, without the one being typed. Fails if the line
# contains no trireme.
function __trireme_line
  set -l line
  for word in (commandline -opc)
    if test "$word" = : # mpirun and srun: another program begins
      set line
    else if set -q line[1]
      set -a line $word
    else if string match -qr '(^|/)trireme$' -- $word
      set line (command -s (string replace -r '^~/' $HOME/ -- $word))
    end
  end
  set -q line[1]; and printf '%s\n' $line
end

function __trireme_complete
  set -l line (__trireme_line)
  test -n "$line[1]"; or return
  $line[1] completion words -- $line[2..-1] (string unescape -- (commandline -ct))
end

complete -c trireme -f -a '(__trireme_complete)'
complete -c trireme-get-data -n 'test (count (commandline -opc)) = 1' -f -a 'cifar10 fashion-mnist mnist shakespeare speakers'
for launcher in mpirun mpiexec srun supervise trireme-supervise env nice nohup
  complete -c $launcher -n '__trireme_line >/dev/null' -f -a '(__trireme_complete)'
end
