# Sourced by the batch scripts, which request the resources. Runs `trireme train "$@"` on them.
# shellcheck shell=bash
if [[ -r env.sh ]]; then
  # shellcheck source=deploy/env.sh
  . ./env.sh # in a bundle
fi
PATH=$PWD/build/release/bin:$PATH
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

case ${LAUNCHER:-srun} in
  # A failing rank ends the others. Since Slurm 22.05, srun does not inherit --cpus-per-task.
  srun) launcher=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS") ;;
  # mpirun gets the nodes and the number of ranks from Slurm. The threads of all ranks share the
  # cores of the node.
  mpirun) launcher=(mpirun --bind-to none) ;;
  *)
    echo "LAUNCHER=$LAUNCHER: must be srun or mpirun" >&2
    exit 2
    ;;
esac

# If IMAGE names an image of deploy/apptainer, the host's srun or mpirun starts each rank in a
# container.
program=(trireme)
if [[ -n ${IMAGE:-} ]]; then
  program=(apptainer run --nv --bind "$PWD" "$IMAGE")
fi

# Uses exec, so that launch/supervise receives the SIGUSR1 sent to the batch script. It forwards it
# to the ranks, which save and exit with 75. Then (but not if it gave up, 76) it runs `scontrol
# requeue` for the job or the task of an array, which then resumes. After the failure of a rank, it restarts the
# run within the same job.
exec launch/supervise --requeue --grace 90s -- "${launcher[@]}" "${program[@]}" train "$@"
