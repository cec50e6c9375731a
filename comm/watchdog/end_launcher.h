// Works around a problem of Open MPI: while mpirun cannot reach its daemons on other hosts, it does
// not exit, even if all ranks of its own host have. Without this, a job whose network fails would
// end only after a TCP timeout of 15 minutes.
#pragma once

namespace trireme::comm {

// Forks a process that ends the mpirun, or its daemon, that this process descends from; does
// nothing if there is none. It waits two seconds, sends SIGTERM twice, one second apart (mpirun
// needs both), and finally SIGKILL. Call it when another host is lost. Safe to call while other
// threads are stuck.
void end_launcher_soon() noexcept;

}  // namespace trireme::comm
