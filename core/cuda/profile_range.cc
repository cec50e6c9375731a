#include "core/profile_range.h"

#include <nvtx3/nvToolsExt.h>

namespace trireme {

ProfileRange::ProfileRange(const char* name) { nvtxRangePushA(name); }
ProfileRange::~ProfileRange() { nvtxRangePop(); }

}  // namespace trireme
