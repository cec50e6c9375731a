#include "comm/mpi/session.h"

#include <mpi.h>

#include <cstdlib>

#include "comm/mpi/checked.h"
#include "core/error.h"

namespace trireme::comm::mpi {

Session::Session(bool one_host) {
  // Does not override settings of the user, including those made with mpirun --mca.
  const auto prefer = [](const char* name, const char* value) { setenv(name, value, 0); };
  // A leader that waits for another host must not keep its core from the threads that compute.
  prefer("OMPI_MCA_mpi_yield_when_idle", "1");
  // By default Open MPI sends a large message over TCP as one piece, behind which the request for
  // data from the other side waits: two hosts that exchange data then take turns, which takes up to
  // twice as long.
  prefer("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "262144");
  if (one_host) {
    prefer("OMPI_MCA_pml", "ob1");
    prefer("OMPI_MCA_btl", "self,vader");
    prefer("OMPI_MCA_osc", "sm");
  }
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), {"MPI_Init_thread"});
  if (provided < MPI_THREAD_MULTIPLE) {
    throw ConfigError("this MPI library does not support MPI_THREAD_MULTIPLE (" +
                      library_version() + "); use one built with thread support");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), {"MPI_Comm_size"});
}

void Session::finalize() { check(MPI_Finalize(), {"MPI_Finalize"}); }

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check(MPI_Get_library_version(text, &length), {"MPI_Get_library_version"});
  return text;
}

}  // namespace trireme::comm::mpi
