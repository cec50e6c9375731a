// Open MPI's launcher does not end while it cannot reach its daemons on other hosts, whatever
// becomes of the ranks: a job whose network is cut would stay until TCP gives up, in a quarter of
// an hour.
#pragma once

namespace trireme::comm {

// Leaves a process behind that sees to it, if this process descends from mpirun or one of its
// daemons: two seconds later it is asked to end, a second later again (which mpirun wants), and
// then it is killed. For when another host is lost. Safe with other threads stuck.
void end_launcher_soon() noexcept;

}  // namespace trireme::comm
