// Works around Open MPI's mpirun not exiting, although all ranks of its host have, while it cannot
// reach its daemons on other hosts: without this, a job whose network fails would only end after a
// TCP timeout of a quarter of an hour.
#pragma once

namespace trireme::comm {

// Forks a process that ends the mpirun, or the daemon of it, from which this process descends; does
// nothing if there is none. It waits two seconds, sends SIGTERM twice, one second apart (mpirun
// needs both), and finally SIGKILL. Call it when another host is lost. Safe to call while other
// threads are stuck.
void end_launcher_soon() noexcept;

}  // namespace trireme::comm
