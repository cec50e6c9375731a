#pragma once

namespace trireme {

// "0.1.0+git20261123142233.1a2b3c4d": the release and, where the program was built in a clone, the
// time and the id of the commit (version.cmake). Tests, which would be linked anew at each commit,
// have the release alone.
const char* version();

}  // namespace trireme
