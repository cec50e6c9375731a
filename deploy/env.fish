# For fish: source env.fish, from any folder. Sets the same variables as env.sh.
set -l folder (realpath (dirname (status filename)))
for line in (sh -c 'cd "$1" && . ./env.sh && env -0' sh $folder | string split0)
  set -l pair (string split -m 1 = -- $line)
  if test "$pair[1]" = PATH
    set -gx PATH (string split : -- $pair[2])
  else if string match -qr '^(TRIREME_BUNDLE|(OPAL|PMIX|HWLOC|OMPI)_\w+)$' -- $pair[1]
    set -gx $pair[1] $pair[2]
  end
end
