#pragma once

namespace trireme {

// Returns the version, e.g. "0.1.0+git20261123142233.1a2b3c4d": the release and, if the program was
// built in a git clone, the time and the ID of the commit (version.cmake). Tests contain the
// release only, so that they need not be linked again for each commit.
const char* version();

}  // namespace trireme
