// Selection of addresses by Open MPI's settings, and parsing of addresses.
#include "comm/watchdog/socket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace trireme::comm {
namespace {

class AddressesTest : public testing::Test {
 protected:
  void SetUp() override { forget(); }
  void TearDown() override { forget(); }
  static void forget() {
    unsetenv("OMPI_MCA_btl_tcp_if_include");
    unsetenv("OMPI_MCA_btl_tcp_if_exclude");
  }
  static void include(const char* list) { setenv("OMPI_MCA_btl_tcp_if_include", list, 1); }
  static void exclude(const char* list) { setenv("OMPI_MCA_btl_tcp_if_exclude", list, 1); }
  static std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (const Address& address : local_addresses()) texts.push_back(address.text());
    return texts;
  }
  static bool has(const std::string& text) {
    const auto all = texts();
    return std::ranges::find(all, text) != all.end();
  }
};

TEST_F(AddressesTest, UsesAllInterfacesThatAreUp) {
  EXPECT_TRUE(has("127.0.0.1:0"));
  for (const Address& address : local_addresses()) {
    EXPECT_EQ(address.loopback, address.text() == "127.0.0.1:0" || address.text() == "[::1]:0")
        << address.text();
    EXPECT_FALSE(address.text().starts_with("[fe80")) << "is link-local";
  }
}

TEST_F(AddressesTest, IncludeByNameOrNetwork) {
  for (const char* list : {"lo", "127.0.0.1/8", "none0,lo", "10.255.254.0/24,127.0.0.0/8",
                           "127.0.0.1", "127.0.0.0/31"}) {
    include(list);
    EXPECT_TRUE(has("127.0.0.1:0")) << list;
    for (const Address& address : local_addresses()) EXPECT_TRUE(address.loopback) << list;
  }
}

TEST_F(AddressesTest, IncludeOfMissingNetworks) {
  for (const char* list :
       {"none0", "127.0.0.2/32", "127.0.0.1/33", "127.0.0.1/x", "::1/128", ",,"}) {
    include(list);
    EXPECT_FALSE(has("127.0.0.1:0")) << list;
  }
}

TEST_F(AddressesTest, ExcludeLeavesLoopbackToThisMachine) {
  const auto all = texts();
  exclude("0.0.0.0/0,::/0");
  for (const Address& address : local_addresses()) EXPECT_TRUE(address.loopback);
  EXPECT_TRUE(has("127.0.0.1:0"));
  exclude("none0");
  EXPECT_EQ(texts(), all);
}

TEST(AddressTest, ParsesItsOwnText) {
  for (const char* text : {"10.1.2.3:4242", "127.0.0.1:1", "[fd00::1]:65535", "[::1]:0"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
}

TEST(AddressTest, RejectsInvalidTexts) {
  for (const char* text :
       {"", ":", "10.1.2.3", "10.1.2:1", "10.1.2.3:65536", "10.1.2.3:-1", "10.1.2.3:", "fd00::1",
        "[fd00::1]", "[10.1.2.3]:1", "[fd00::1:1", "host:1", "10.1.2.3:1 "}) {
    EXPECT_FALSE(Address::parse(text)) << text;
  }
}

}  // namespace
}  // namespace trireme::comm
