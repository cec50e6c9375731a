# Prints the completions that an interactive zsh offers for a line with the cursor at its end, one per line; also
# "(no space)" if the word is incomplete.
#   zsh -f offers.zsh SCRIPT LINE
zmodload zsh/zpty
folder=$(mktemp -d)
{

# Setup of the interactive zsh.
cat >$folder/setup <<SETUP
exec 2>$folder/error
PS1= PATH=${(q)PATH}
cd ${(q)PWD}
autoload -Uz compinit
compinit -u -d \$HOME/completions # faster from the second line on
_srun() { compadd -- --of-another }
compdef _srun srun
source ${(q)1}
source ${(q)1}
compadd() {
  local -a matches
  builtin compadd -O matches "\$@"
  (( \$#matches )) && [[ \${argv[(I)-S]} != 0 ]] && print "(no space)" >>$folder/offers
  print -rl -- \$matches >>$folder/offers
  builtin compadd "\$@"
}
report() { compstate[insert]= compstate[list]= }
comppostfuncs=(report)
finish() { touch $folder/done }
zle -N finish
bindkey '^I' complete-word
bindkey '^X' finish
print READY
SETUP
touch $folder/offers $folder/error

zpty terminal zsh -f -i
zpty -w terminal "source $folder/setup"
zpty -r terminal started '*READY*'
zpty -w -n terminal "$2"$'\t\x18'
for ((i = 0; i < 600; ++i)); do # zsh reads keys only while its output is read
  while zpty -r -t terminal seen; do shown+=$seen; done
  [[ -e $folder/done ]] && break
  sleep 0.05
done
[[ -e $folder/done ]] || print -ru2 -- "zsh hangs: $shown"
zpty -d terminal
offers=(${(f)"$(<$folder/offers)"})
words=(${offers:#"(no space)"})
(( $#words == 1 )) && words=($offers)
(( $#words )) && print -rl -- $words
cat $folder/error >&2
} always {
rm -rf $folder
}
