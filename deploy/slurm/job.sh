# Sourced by the batch scripts, which say where and how long; this is what runs there: trireme train "$@".
# shellcheck shell=bash
if [[ -r env.sh ]]; then
  # shellcheck source=deploy/env.sh
  . ./env.sh # of a bundle
fi
PATH=$PWD/build/release/bin:$PATH
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

case ${LAUNCHER:-srun} in
  # A rank that fails ends the others. From Slurm 22.05 on, srun has to be told the CPUs again.
  srun) launcher=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS") ;;
  # It finds the nodes and the number of ranks by itself. The threads of a rank share its node's cores.
  mpirun) launcher=(mpirun --bind-to none) ;;
  *)
    echo "LAUNCHER=$LAUNCHER: neither srun nor mpirun" >&2
    exit 2
    ;;
esac

# From an image of deploy/apptainer where IMAGE names one: srun or mpirun of the host start the ranks, each in a container.
program=(trireme)
if [[ -n ${IMAGE:-} ]]; then
  program=(apptainer run --nv --bind "$PWD" "$IMAGE")
fi

# exec: so that it is launch/supervise that gets the batch script's SIGUSR1. It hands it on to the ranks, which save and
# leave with 75; then, and not when it gave up (76), it does `scontrol requeue $SLURM_JOB_ID`, and the next turn goes on
# from there. A rank's failure it mends on the spot, without a new place in the queue.
exec launch/supervise --requeue --grace 90s -- "${launcher[@]}" "${program[@]}" train "$@"
