#include "data/files/file_names.h"

#include <gmock/gmock.h>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using testing::message;

class FileNamesTest : public ::testing::Test {
 protected:
  // Returns the names relative to `folder`.
  std::vector<std::string> expand(const std::vector<std::string>& patterns) const {
    const google::protobuf::RepeatedPtrField<std::string> all(patterns.begin(), patterns.end());
    std::vector<std::string> names = expand_names(folder.path(), all, "data.x");
    for (std::string& name : names) {
      EXPECT_EQ(name.find(folder.path()), 0u) << name;
      name = name.substr(folder.path().size());
    }
    return names;
  }
  std::string config_error(const std::vector<std::string>& patterns) const {
    return message<ConfigError>([&] { expand(patterns); });
  }
  std::string data_error(const std::vector<std::string>& patterns) const {
    return message<DataError>([&] { expand(patterns); });
  }
  void make(const std::vector<std::string>& names) const {
    for (const std::string& name : names) folder.write(name, "x");
  }
  Folder folder;
};

TEST_F(FileNamesTest, NamesWithoutBracesAreUnchanged) {
  make({"b.tar", "a.tar"});
  EXPECT_THAT(expand({"b.tar", "a.tar"}), ElementsAre("b.tar", "a.tar"));
}

TEST_F(FileNamesTest, RangesKeepLeadingZeros) {
  make({"t-008", "t-009", "t-010", "t-8", "t-9", "t-10"});
  EXPECT_THAT(expand({"t-{008..010}"}), ElementsAre("t-008", "t-009", "t-010"));
  EXPECT_THAT(expand({"t-{8..10}"}), ElementsAre("t-8", "t-9", "t-10"));
  EXPECT_THAT(expand({"t-{008..10}"}), ElementsAre("t-008", "t-009", "t-010"));
  EXPECT_THAT(expand({"t-{9..9}"}), ElementsAre("t-9"));
}

TEST_F(FileNamesTest, ListsNestAndMultiply) {
  make({"a/x0", "a/x1", "b/x0", "b/x1", "c1", "cc1", "c2", "d"});
  EXPECT_THAT(expand({"{b,a}/x{0..1}"}), ElementsAre("b/x0", "b/x1", "a/x0", "a/x1"));
  EXPECT_THAT(expand({"{d,c{1..2}}"}), ElementsAre("d", "c1", "c2"));
  EXPECT_THAT(expand({"{d,{c{2,1},a/x0}}"}), ElementsAre("d", "c2", "c1", "a/x0"));
  EXPECT_THAT(expand({"a/x{1,0}", "c{,c}1"}), ElementsAre("a/x1", "a/x0", "c1", "cc1"));
}

TEST_F(FileNamesTest, GlobsAreSortedByBytes) {
  make({"t-b", "t-B", "t-a", "t-10", "t-9", "u", ".t-hidden", "deep/t-1"});
  EXPECT_THAT(expand({"t-*"}), ElementsAre("t-10", "t-9", "t-B", "t-a", "t-b"));
  EXPECT_THAT(expand({"t-[ab]", "?"}), ElementsAre("t-a", "t-b", "u"));
  EXPECT_THAT(expand({"{t-B,*/t-*}"}), ElementsAre("t-B", "deep/t-1"));
}

TEST_F(FileNamesTest, SpecialCharactersInTheRootAreLiteral) {
  make({"we[i]rd*/t-1", "wei rd/t-1"});
  google::protobuf::RepeatedPtrField<std::string> pattern;
  pattern.Add("t-*");
  EXPECT_THAT(expand_names(folder.path("we[i]rd*"), pattern, "data.x"),
              ElementsAre(folder.path("we[i]rd*/t-1")));
}

TEST_F(FileNamesTest, AbsolutePatternsNeedNoRoot) {
  make({"t-1"});
  google::protobuf::RepeatedPtrField<std::string> pattern;
  pattern.Add(folder.path("t-{1..1}"));
  EXPECT_THAT(expand_names("", pattern, "data.x"), ElementsAre(folder.path("t-1")));
}

TEST_F(FileNamesTest, BadPatterns) {
  EXPECT_SAYS(config_error({}), "data.x: is empty; list at least one file");
  EXPECT_SAYS(config_error({""}), "data.x: contains an empty file name");
  EXPECT_SAYS(config_error({"a{0..1"}), "data.x: 'a{0..1' has a { without a }");
  EXPECT_SAYS(config_error({"a0..1}"}), "'a0..1}' has a } without a {");
  EXPECT_SAYS(config_error({"a{b}"}), "has {b}, which is neither a list {a,b} nor a range");
  EXPECT_SAYS(config_error({"a{}"}), "has {}, which is neither");
  EXPECT_SAYS(config_error({"a{-1..3}"}), "has {-1..3}, which is neither");
  EXPECT_SAYS(config_error({"a{1..2..3}"}), "has {1..2..3}, which is neither");
  EXPECT_SAYS(config_error({"a{9..1}"}), "has {9..1}, which counts down");
  EXPECT_SAYS(config_error({"{0..4294967295}"}), "expands to more than 1048576 files");
  EXPECT_SAYS(config_error({"{0..9999}{0..9999}"}), "expands to more than 1048576 files");
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{a,";
  EXPECT_SAYS(config_error({nested + std::string(100000, '}')}),
              "has more than 100 pairs of braces in or behind each other");
}

TEST_F(FileNamesTest, RejectsDuplicates) {
  make({"t-1", "t-2"});
  EXPECT_SAYS(config_error({"t-{1..2}", "t-*"}),
              "data.x: lists '" + folder.path("t-1'") + " twice");
  EXPECT_SAYS(config_error({"t-1", "./t-1"}), "twice");
}

TEST_F(FileNamesTest, MissingFiles) {
  make({"t-1"});
  EXPECT_EQ(data_error({"t-{0..3}"}),
            folder.path("t-0") + ": does not exist (3 of the 4 files of data.x are missing)");
  EXPECT_EQ(data_error({"u-*"}), folder.path("u-*") + ": matches no files");
  google::protobuf::RepeatedPtrField<std::string> pattern;
  pattern.Add("*");
  EXPECT_SAYS(message<DataError>([&] { expand_names("no/folder", pattern, "data.x"); }),
              "data.root: 'no/folder' is not a folder");
  EXPECT_SAYS(message<DataError>([&] { expand_names("no/shakespeare", pattern, "data.x"); }),
              "; launch/get-data shakespeare downloads it");
}

}  // namespace
}  // namespace trireme::data
