// The kinds of device that this machine has, for tests that hold on each of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device.h"

namespace trireme::train {

inline std::vector<std::string> devices() {
  std::vector<std::string> all = {"cpu"};
  if (query_cuda().devices > 0) all.push_back("cuda");
  return all;
}

inline std::string device_name(const testing::TestParamInfo<std::string>& device) {
  return device.param;
}

}  // namespace trireme::train

// At the end of a file that has TEST_P(Fixture, ...), whose parameter is train.device.
#define TRIREME_ON_ALL_DEVICES(Fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(Devices, Fixture, testing::ValuesIn(trireme::train::devices()), \
                           trireme::train::device_name)
