// The kinds of device of this host, for tests that run on each of them.
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

// Runs each TEST_P(Fixture, ...) on all devices; the parameter is train.device.
#define TRIREME_ON_ALL_DEVICES(Fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(Devices, Fixture, testing::ValuesIn(trireme::train::devices()), \
                           trireme::train::device_name)
