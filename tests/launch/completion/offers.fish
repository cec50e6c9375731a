# Prints the completions that fish offers for a line with the cursor at its end, one per line.
#   fish --no-config offers.fish SCRIPT LINE
complete -c srun -f -a --of-another
source $argv[1]
source $argv[1]
for offer in (complete -C $argv[2])
  printf '%s\n' (string split -- \t $offer)[1]
end
