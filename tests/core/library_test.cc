#include "core/cuda/library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"

namespace trireme::cuda {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

// A temporary folder in which Python would look for packages.
class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(packages_);
    fs::create_directories(packages_ / "nvidia/thing/lib");
    setenv("PYTHONPATH", ("/nowhere::" + packages_.string()).c_str(), 1);
  }
  void TearDown() override {
    unsetenv("PYTHONPATH");
    fs::remove_all(packages_);
  }

  const fs::path packages_ = fs::path(testing::TempDir()) / "trireme_library_test";
  const fs::path file_ = packages_ / "nvidia/thing/lib/libtrireme_thing.so.1";
};

TEST_F(LibraryTest, FindsLibrariesOfTheDynamicLinker) {
  const Library library("math", {"libtrireme_nothing.so.1", "libm.so.6"});
  EXPECT_EQ(library.problem(), "");
  EXPECT_TRUE(contains(library.path(), "/libm.so.6")) << library.path();
  EXPECT_EQ(library.function<double(double, double)>("hypot")(3, 4), 5);
}

TEST_F(LibraryTest, FindsWheelsOfPython) {
  fs::copy_file(Library("math", {"libm.so.6"}).path(), file_);
  const Library library("thing", {"libtrireme_thing.so.1"});
  EXPECT_EQ(library.problem(), "");
  EXPECT_EQ(library.path(), file_);
  EXPECT_EQ(library.function<double(double, double)>("hypot")(3, 4), 5);
}

// A virtual environment that is not activated, but whose programs are first in PATH.
TEST_F(LibraryTest, FindsWheelsOfThePythonOnThePath) {
  unsetenv("PYTHONPATH");
  const fs::path environment = packages_ / "environment";
  const fs::path wheel = environment / "lib/python3.11/site-packages/nvidia/thing/lib";
  fs::create_directories(wheel);
  fs::create_directories(environment / "bin");
  fs::create_symlink("/bin/sh", environment / "bin/python3");
  fs::copy_file(Library("math", {"libm.so.6"}).path(), wheel / "libtrireme_thing.so.1");
  const std::string before = std::getenv("PATH");
  setenv("PATH",
         (packages_.string() + "::" + (environment / "bin").string() + ":" + before).c_str(), 1);
  const Library library("thing", {"libtrireme_thing.so.1"});
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(library.problem(), "");
  EXPECT_EQ(fs::canonical(library.path()), fs::canonical(wheel / "libtrireme_thing.so.1"));
}

TEST_F(LibraryTest, ProblemListsTheSearchedFolders) {
  const Library library("thing", {"libtrireme_thing.so.1", "libtrireme_thing.so.2"});
  EXPECT_EQ(library.handle(), nullptr);
  EXPECT_TRUE(
      contains(library.problem(), "thing (libtrireme_thing.so.1 or libtrireme_thing.so.2)"));
  EXPECT_TRUE(contains(library.problem(), file_.parent_path())) << library.problem();
  EXPECT_EQ(message_of([&] { library.function<void()>("begin"); }),
            "begin failed: " + library.problem());
}

TEST_F(LibraryTest, ProblemExplainsWhyAFileDoesNotLoad) {
  std::ofstream(file_) << "no library";
  const Library library("thing", {"libtrireme_thing.so.1"});
  EXPECT_TRUE(contains(library.problem(), file_)) << library.problem();
}

TEST_F(LibraryTest, ErrorNamesTheMissingFunction) {
  const Library library("math", {"libm.so.6"});
  EXPECT_TRUE(contains(message_of([&] { library.function<void()>("trireme_begin"); }),
                       "trireme_begin failed: " + library.path()));
}

}  // namespace
}  // namespace trireme::cuda
