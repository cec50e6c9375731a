#include "core/installation.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/build_tree.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

TEST(Installation, BuildTreeHasTheLayoutOfAnInstallation) {
  EXPECT_EQ(share_folder(), testing::build_tree() / "share" / "trireme");
  EXPECT_TRUE(fs::exists(share_folder() / "configs" / "digits.txtpb"));
  EXPECT_TRUE(fs::exists(share_folder() / "data" / "digits" / "digits.csv.gz"));
}

TEST(Installation, ExistingPathsTakePrecedence) {
  const fs::path before = fs::current_path();
  const fs::path folder = fs::path(::testing::TempDir()) / "installation_test";
  fs::create_directories(folder / "data" / "here");
  fs::create_directories(folder / "configs");
  fs::current_path(folder);
  EXPECT_EQ(find_shared("data/here"), "data/here");
  EXPECT_EQ(find_shared("digits.txtpb", "configs"), share_folder() / "configs" / "digits.txtpb");
  EXPECT_EQ(find_shared("data/digits"), share_folder() / "data" / "digits");
  EXPECT_EQ(find_shared("data/none"), "data/none");
  EXPECT_EQ(find_shared("/data/digits"), "/data/digits");
  EXPECT_EQ(find_shared(""), "");
  EXPECT_EQ(find_shared("."), ".");
  fs::current_path(before);
  fs::remove_all(folder);
}

TEST(Installation, ScriptCommandUsesTheRepository) {
  EXPECT_EQ(script_command("get-data"), "launch/get-data");
}

}  // namespace
}  // namespace trireme
